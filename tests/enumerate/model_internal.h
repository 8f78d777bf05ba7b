/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of the model. */
#ifndef EPOCHFS_TESTS_MODEL_INTERNAL_H
#define EPOCHFS_TESTS_MODEL_INTERNAL_H

#include "tests/enumerate/model.h"

/* ---- model.c ---- */
void letters_fill(struct letters *c, char letter, uint8_t len);
/* `now`: NULL: empty. */
uint8_t body_new(struct model *m, uint8_t file, const struct letters *now);
/* `closed`: NULL: it is being made. */
uint8_t file_new(struct model *m, const struct letters *closed);
/* A name leads to this file (-1: is gone), and covers that one (-1: none). */
void name_set(struct model *m, unsigned name, int8_t file, int8_t covered);
/* Where that was the last, what is open of the file is nobody's. */
void file_lost_name(struct model *m, int8_t file);
/* The newest replacement of the file that one of these processes (bits; 0: anybody) sees, or -1. */
int pending_of(const struct model *m, uint8_t file, uint8_t members);

/* ---- model_names.c ---- */
/* An errno, or 0. */
int model_do_name(struct model *m, const struct step *s, unsigned number);
void model_do_rollback(struct model *m);

#endif

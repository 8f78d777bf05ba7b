/* SPDX-License-Identifier: Apache-2.0 */
/* Lets allocations of the library fail, one in each run of a unit test. */
#ifndef EPOCHFS_TESTS_ALLOC_H
#define EPOCHFS_TESTS_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

/*
 * In builds with SAN=address, unit test programs are linked to a library whose calls of malloc and its
 * like (alloc.syms) come here; so do the allocations that jansson, SQLite, curl and expat make for
 * it. They are malloc's own unless EPOCHFS_ALLOC_REPORT names a file: then each test is run again
 * and again (alloc_run.c), in a process of its own each time.
 */

/*
 * Shared by all processes of a program. A place is where an allocation comes from: a hash of the innermost functions
 * on the stack, of those that are the program's own.
 */
#define ALLOC_FRAMES 32
#define ALLOC_OWN    3		/* alloc.c's own come first, to alloc_malloc or its like */
#define ALLOC_NOTED  (1u << 20) /* of a run; what comes later is not looked at by place */
#define ALLOC_SEEN   (1u << 17) /* a power of 2 */
struct alloc_shared {
	char test[128];		/* the function's name, once it has begun */
	_Atomic uint64_t count; /* calls so far in this run */
	uint64_t fail_at;	/* which one fails; 0: none */
	void *fail_of;		/* the first one of this function fails; NULL: fail_at says it */
	_Atomic bool failed;	/* it came to that */
	void *stack[ALLOC_FRAMES + 1]; /* where; ended by NULL */
	/* How many functions make a place; 0: places are not noted. */
	unsigned depth;
	uint64_t places[ALLOC_NOTED]; /* of each call */
	/* Those that failed already, in this test or one before: a hash table, 0 is free. */
	uint64_t seen[ALLOC_SEEN];
};

/* NULL: nothing is to fail. */
extern struct alloc_shared *alloc_shared;

/* Only the calls of this process count, and of the threads that it starts: a fork's do not. */
void alloc_begin(void);
/* Whether this one is to fail. */
bool alloc_fails(void);
/* unit.h says what they do. */
bool unit_fail_alloc(uint64_t number);
bool unit_fail_alloc_of(void *function);
bool unit_alloc_failed(void);

#endif

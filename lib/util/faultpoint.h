/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault points: named places where a test lets the process die as by kill -9. The program for tests
 * (tests/fault/armed.c) obeys an environment variable that names one, "NAME" (the first time it is reached) or
 * "NAME:N" (the Nth time). What is installed obeys nothing; a point costs one load and a branch. Names are
 * "<part>.<what was just done>".
 */
#ifndef EPOCHFS_UTIL_FAULTPOINT_H
#define EPOCHFS_UTIL_FAULTPOINT_H

#include <stdatomic.h>

/* 0: not looked yet; 1: no fault is asked for; 2: one is. */
extern atomic_int fault_points;

/* The name of that variable; NULL: there is none, as in what is installed. The definition in faultpoint.c is
 * weak: linking another one in arms the points. */
const char *fault_variable(void);
/* Where the points are armed, a program that is started from here has none to die at. */
void fault_disarm_children(void);

/* Any thread. Does not return where this is the point and the time that was asked for. */
void fault_point_reached(const char *name);

#define FAULT_POINT(name)                                                                          \
	do {                                                                                       \
		if (__builtin_expect(                                                              \
			    atomic_load_explicit(&fault_points, memory_order_relaxed) != 1, 0))    \
			fault_point_reached(name);                                                 \
	} while (0)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the library calls in place of malloc and its like (alloc.syms). */
#include "tests/alloc/alloc.h"

#include <curl/curl.h>
#include <dirent.h>
#include <errno.h>
#include <expat.h>
#include <fts.h>
#include <jansson.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

struct alloc_shared *alloc_shared;
static pid_t counted;
static _Thread_local bool paused;

void alloc_begin(void)
{
	counted = getpid();
}

/* ---- from where */

/* The program's own code: the test's and the library's. */
extern const char __executable_start[], __etext[];

struct walk {
	uintptr_t frames[ALLOC_FRAMES];
	int count;
};

/* What another library does inside it with memory is, from here, one call of it. */
static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *arg)
{
	struct walk *w = arg;
	uintptr_t at = _Unwind_GetIP(context);

	if (at >= (uintptr_t)__executable_start && at < (uintptr_t)__etext)
		w->frames[w->count++] = at;
	return w->count < ALLOC_FRAMES ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static uint64_t place_of_caller(unsigned depth)
{
	struct walk w = {.count = 0};
	uint64_t hash = 0;

	_Unwind_Backtrace(step, &w);
	for (unsigned i = ALLOC_OWN; i < (unsigned)w.count && i < ALLOC_OWN + depth; i++)
		hash = (hash ^ w.frames[i]) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ? hash : 1;
}

static void note_stack(void *stack[ALLOC_FRAMES + 1])
{
	struct walk w = {.count = 0};

	_Unwind_Backtrace(step, &w);
	for (int i = 0; i < w.count; i++)
		stack[i] = (void *)w.frames[i];
	stack[w.count] = NULL;
}

/* Where the library's function is that calls malloc or its like. */
static void *function_of_caller(void)
{
	struct walk w = {.count = 0};

	_Unwind_Backtrace(step, &w);
	return w.count > ALLOC_OWN ? _Unwind_FindEnclosingFunction((void *)w.frames[ALLOC_OWN])
				   : NULL;
}

bool alloc_fails(void)
{
	struct alloc_shared *s = alloc_shared;
	uint64_t number;

	if (!s || getpid() != counted || paused)
		return false;
	number = ++s->count;
	if (s->depth && number < ALLOC_NOTED)
		s->places[number] = place_of_caller(s->depth);
	if (s->fail_of ? s->failed || function_of_caller() != s->fail_of : number != s->fail_at)
		return false;
	note_stack(s->stack);
	s->failed = true;
	errno = ENOMEM;
	return true;
}

/* ---- tests that choose by themselves */

static bool fail(uint64_t number, void *function)
{
	static struct alloc_shared own;

	if (alloc_shared && alloc_shared != &own)
		return false;
	own.count = 0;
	own.failed = false;
	own.fail_at = number;
	own.fail_of = function;
	alloc_shared = number || function ? &own : NULL;
	alloc_begin();
	return true;
}

bool unit_fail_alloc(uint64_t number)
{
	return fail(number, NULL);
}

bool unit_fail_alloc_of(void *function)
{
	return fail(0, function);
}

bool unit_alloc_failed(void)
{
	return alloc_shared && alloc_shared->failed;
}

/* ---- libc's */

void *alloc_malloc(size_t size);
void *alloc_calloc(size_t count, size_t size);
void *alloc_realloc(void *p, size_t size);
void *alloc_reallocarray(void *p, size_t count, size_t size);
void *alloc_aligned_alloc(size_t align, size_t size);
char *alloc_strdup(const char *s);
char *alloc_strndup(const char *s, size_t max);
int alloc_vasprintf(char **ret_text, const char *fmt, va_list args)
	__attribute__((format(printf, 2, 0)));
DIR *alloc_opendir(const char *path);
DIR *alloc_fdopendir(int fd);
FILE *alloc_fopen(const char *path, const char *mode);
FTS *alloc_fts_open(char *const *paths, int options,
		    int (*compare)(const FTSENT **, const FTSENT **));
int alloc_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attr, void *(*run)(void *),
			 void *arg);
CURLcode alloc_curl_global_init(long flags);
json_t *alloc_json_loadb(const char *bytes, size_t len, size_t flags, json_error_t *ret_error);
json_t *alloc_json_loads(const char *text, size_t flags, json_error_t *ret_error);
XML_Parser alloc_XML_ParserCreate(const XML_Char *encoding);
XML_Parser alloc_XML_ParserCreateNS(const XML_Char *encoding, XML_Char separator);

void *alloc_malloc(size_t size)
{
	return alloc_fails() ? NULL : malloc(size);
}

void *alloc_calloc(size_t count, size_t size)
{
	return alloc_fails() ? NULL : calloc(count, size);
}

void *alloc_realloc(void *p, size_t size)
{
	return alloc_fails() ? NULL : realloc(p, size);
}

void *alloc_reallocarray(void *p, size_t count, size_t size)
{
	return alloc_fails() ? NULL : reallocarray(p, count, size);
}

void *alloc_aligned_alloc(size_t align, size_t size)
{
	return alloc_fails() ? NULL : aligned_alloc(align, size);
}

char *alloc_strdup(const char *s)
{
	return alloc_fails() ? NULL : strdup(s);
}

char *alloc_strndup(const char *s, size_t max)
{
	return alloc_fails() ? NULL : strndup(s, max);
}

int alloc_vasprintf(char **ret_text, const char *fmt, va_list args)
{
	if (!alloc_fails())
		return vasprintf(ret_text, fmt, args);
	/* It is undefined then: whoever frees it is found. */
	*ret_text = (char *)1;
	return -1;
}

DIR *alloc_opendir(const char *path)
{
	return alloc_fails() ? NULL : opendir(path);
}

DIR *alloc_fdopendir(int fd)
{
	return alloc_fails() ? NULL : fdopendir(fd);
}

FILE *alloc_fopen(const char *path, const char *mode)
{
	return alloc_fails() ? NULL : fopen(path, mode);
}

FTS *alloc_fts_open(char *const *paths, int options,
		    int (*compare)(const FTSENT **, const FTSENT **))
{
	return alloc_fails() ? NULL : fts_open(paths, options, compare);
}

int alloc_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attr, void *(*run)(void *),
			 void *arg)
{
	return alloc_fails() ? EAGAIN : pthread_create(ret_thread, attr, run, arg);
}

/* ---- the libraries' */

CURLcode alloc_curl_global_init(long flags)
{
	return curl_global_init_mem(flags, alloc_malloc, free, alloc_realloc, alloc_strdup,
				    alloc_calloc);
}

static const XML_Memory_Handling_Suite expat_memory = {alloc_malloc, alloc_realloc, free};

XML_Parser alloc_XML_ParserCreate(const XML_Char *encoding)
{
	return XML_ParserCreate_MM(encoding, &expat_memory, NULL);
}

XML_Parser alloc_XML_ParserCreateNS(const XML_Char *encoding, XML_Char separator)
{
	const XML_Char text[2] = {separator, 0};

	return XML_ParserCreate_MM(encoding, &expat_memory, text);
}

/*
 * As a whole: where memory ends inside, the lexer of jansson 2.14 goes on, and writes behind what it has (lex_save
 * does not look what became of strbuffer_append_byte).
 */
json_t *alloc_json_loadb(const char *bytes, size_t len, size_t flags, json_error_t *ret_error)
{
	json_t *json;

	if (alloc_fails()) {
		if (ret_error)
			ret_error->text[JSON_ERROR_TEXT_LENGTH - 1] = json_error_out_of_memory;
		return NULL;
	}
	paused = true;
	json = json_loadb(bytes, len, flags, ret_error);
	paused = false;
	return json;
}

json_t *alloc_json_loads(const char *text, size_t flags, json_error_t *ret_error)
{
	return alloc_json_loadb(text, strlen(text), flags, ret_error);
}

static sqlite3_mem_methods sqlite_memory;

static void *sqlite_malloc(int size)
{
	return alloc_fails() ? NULL : sqlite_memory.xMalloc(size);
}

static void *sqlite_realloc(void *p, int size)
{
	return alloc_fails() ? NULL : sqlite_memory.xRealloc(p, size);
}

__attribute__((constructor)) static void start(void)
{
	sqlite3_mem_methods mine;

	json_set_alloc_funcs(alloc_malloc, free);
	if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_memory) != SQLITE_OK)
		return;
	mine = sqlite_memory;
	mine.xMalloc = sqlite_malloc;
	mine.xRealloc = sqlite_realloc;
	sqlite3_config(SQLITE_CONFIG_MALLOC, &mine);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/epochs/fact_log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/cache/context.h"
#include "lib/meta/listing.h"
#include "lib/util/clock.h"
#include "lib/util/process.h"

/* So many are told under the volume's lock at a time. */
#define FACTS_AT_ONCE 32

#define COMMAND_MAX 16 /* as the kernel cuts it */

struct fact {
	struct save_event event;	     /* its paths are of `text` */
	int64_t at_ns;			     /* wall clock */
	const char *trigger, *rule, *judged; /* static, or NULL */
	char command[COMMAND_MAX];
	char *text;
	size_t bytes; /* of that */
};

/* So many names of processes are remembered. */
#define COMMANDS 16

struct command {
	uint64_t process; /* 0: none */
	char name[COMMAND_MAX];
};

/* A ring. */
struct fact_log {
	struct command commands[COMMANDS];
	unsigned next_command;
	size_t first, count, bytes;
	uint64_t dropped; /* so many went before the first */
	struct fact facts[FACTS_MAX];
};

struct fact_log *fact_log_new(void)
{
	return calloc(1, sizeof(struct fact_log));
}

static struct fact *fact_at(const struct fact_log *log, size_t i)
{
	return (struct fact *)(uintptr_t)&log->facts[(log->first + i) % FACTS_MAX];
}

static void drop_first(struct fact_log *log)
{
	struct fact *f = fact_at(log, 0);

	log->bytes -= f->bytes;
	free(f->text);
	log->first = (log->first + 1) % FACTS_MAX;
	log->count--;
	log->dropped++;
}

void fact_log_free(struct fact_log *log)
{
	if (!log)
		return;
	while (log->count)
		drop_first(log);
	free(log);
}

/* A process is asked for its name once in a while. */
static const char *command_of(struct fact_log *log, uint64_t process)
{
	struct command *c = log->commands;

	while (c < log->commands + COMMANDS && c->process != process)
		c++;
	if (c < log->commands + COMMANDS)
		return c->name;
	c = &log->commands[log->next_command++ % COMMANDS];
	c->process = process;
	process_name((pid_t)process, c->name, sizeof(c->name));
	return c->name;
}

static size_t bytes_of(const char *path)
{
	return path ? strlen(path) + 1 : 0;
}

static void copy_paths(struct fact *f, const struct save_event *e)
{
	size_t path = bytes_of(e->path), to = bytes_of(e->to);

	if (path)
		f->event.path = memcpy(f->text, e->path, path);
	if (to)
		f->event.to = memcpy(f->text + path, e->to, to);
}

static void note(struct fact_log *log, const struct save_event *e, const struct fact *more)
{
	struct fact f = {.event = *e,
			 .at_ns = clock_wall_ns(),
			 .trigger = more->trigger,
			 .rule = more->rule,
			 .judged = more->judged,
			 .bytes = bytes_of(e->path) + bytes_of(e->to)};

	f.text = f.bytes ? malloc(f.bytes) : NULL;
	if (f.bytes && !f.text)
		return;
	copy_paths(&f, e);
	if (e->process)
		strcpy(f.command, command_of(log, e->process));
	while (log->count && (log->count == FACTS_MAX || log->bytes + f.bytes > FACTS_BYTES_MAX))
		drop_first(log);
	*fact_at(log, log->count++) = f;
	log->bytes += f.bytes;
}

void fact_log_note_locked(struct volume *vol, const struct save_event *e)
{
	static const struct fact nothing;

	if (vol->facts)
		note(vol->facts, e, &nothing);
}

void fact_log_sealed_locked(struct volume *vol, uint64_t epoch, const char *trigger,
			    const char *rule, const char *judged)
{
	const struct save_event e = {.kind = SAVE_SEALED, .epoch = epoch};
	const struct fact more = {.trigger = trigger, .rule = rule, .judged = judged};

	if (vol->facts)
		note(vol->facts, &e, &more);
}

/* ---- as JSON ---- */

static int put_number(json_t *o, const char *key, uint64_t number)
{
	return number ? json_object_set_new(o, key, json_integer((json_int_t)number)) : 0;
}

static int put_text(json_t *o, const char *key, const char *text)
{
	return text && *text ? json_object_set_new(o, key, listing_string(text)) : 0;
}

static int put_facts(json_t *o, unsigned facts)
{
	json_t *array = json_array();
	int error = 0;

	for (unsigned bit = 1; bit && bit <= facts; bit <<= 1)
		if (facts & bit)
			error |= json_array_append_new(array, json_string(save_fact_name(bit)));
	return error | json_object_set_new(o, "facts", array);
}

static json_t *fact_json(const struct fact *f)
{
	const struct save_event *e = &f->event;
	json_t *o = json_pack("{s:I, s:s}", "at_ns", (json_int_t)f->at_ns, "what",
			      save_event_name(e->kind));
	int error = put_number(o, "process", e->process) | put_text(o, "command", f->command) |
		    put_number(o, "handle", e->handle) | put_number(o, "size", e->size) |
		    put_number(o, "epoch", e->epoch) | put_text(o, "trigger", f->trigger) |
		    put_text(o, "path", e->path) | put_text(o, "to", e->to) |
		    put_text(o, "rule", f->rule) | put_text(o, "judged", f->judged);

	if (!error && e->kind == SAVE_ENDED && !(e->facts & SAVE_IS_UNKNOWN))
		error = json_object_set_new(o, "status", json_integer((json_int_t)e->status));
	if (!error && e->facts)
		error = put_facts(o, e->facts);
	if (!error)
		return o;
	json_decref(o);
	return NULL;
}

/* Appends those from the `*number`th on, a few of them: 1 where more are left, or 0, or -ENOMEM. With the volume's lock. */
static int put_some_locked(const struct fact_log *log, uint64_t *number, json_t *array)
{
	uint64_t end = log->dropped + log->count;

	if (*number < log->dropped)
		*number = log->dropped;
	for (size_t i = 0; i < FACTS_AT_ONCE && *number < end; i++, ++*number)
		if (json_array_append_new(array, fact_json(fact_at(log, *number - log->dropped))))
			return -ENOMEM;
	return *number < end;
}

json_t *fact_log_json(struct volume *vol)
{
	json_t *array = json_array();
	uint64_t number = 0;
	int more = array && vol->facts;

	while (more > 0) {
		SCOPED_LOCK(&vol->lock);
		more = put_some_locked(vol->facts, &number, array);
	}
	if (more == 0)
		return array;
	json_decref(array);
	return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs prune: drops the epochs that a policy lets go; on a mount or on a remote. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/meta/retention_policy.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/freed.h"
#include "tools/progress.h"
#include "tools/table.h"

/* What `patience` is where nobody says otherwise. */
#define PATIENCE (60 * NS_PER_S)

struct prune {
	const struct target *target;
	const char *text; /* of the policy */
	struct retention_policy policy;
	bool dry_run, json;
	bool gc;
	struct collect collect;
	json_t *collected; /* with `gc` and `json` */
	json_t *epochs;	   /* as in log */
	struct retention_epoch *list;
	size_t count, kept, dropped;
	bool *failed; /* of each: it was to go and is still there */
};

/* ---- what there is ---- */

static uint64_t number_of(const json_t *e, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(e, key));

	return v > 0 ? (uint64_t)v : 0;
}

/* What a mount says of its epochs. */
struct mount_says {
	uint64_t current;     /* the live tree stands on it */
	uint64_t recent_from; /* the first that is recent; 0: none */
	bool local_only;      /* sealed is all that an epoch can be there */
};

static int look_at_mount(const struct target *t, struct mount_says *ret_says)
{
	json_t *status = NULL, *epochs;
	int code = client_call(t->name, json_pack("{s:s}", "op", "status"), &status);

	if (code != EXIT_DONE)
		return code;
	epochs = json_object_get(status, "epochs");
	ret_says->current = number_of(epochs, "current");
	ret_says->recent_from = number_of(epochs, "recent_from");
	ret_says->local_only = json_is_true(json_object_get(status, "local_only"));
	json_decref(status);
	return EXIT_DONE;
}

static struct retention_epoch keep_epoch_of(const json_t *e, const struct mount_says *says)
{
	const json_t *complete = json_object_get(e, "complete");
	const char *state = json_string_value(json_object_get(e, "state"));
	const char *sealed = json_string_value(json_object_get(e, "sealed"));
	const char *trigger = json_string_value(json_object_get(e, "trigger"));
	bool continued = json_is_true(json_object_get(e, "continued"));
	struct retention_epoch k = {
		.number = number_of(e, "epoch"),
		.has_step = json_object_get(e, "step") != NULL,
		.step = number_of(e, "step"),
		.complete = json_is_true(complete) && !continued,
		.unknown = !json_is_boolean(complete) && !continued,
		.durable = says->local_only || (state && !strcmp(state, "durable")),
		.tagged = json_array_size(json_object_get(e, "tags")) > 0,
		.bytes_new = number_of(e, "bytes_new"),
		.restores = json_object_get(e, "restores") != NULL,
		.trigger = record_trigger_parse(trigger ? trigger : ""),
		.continues = number_of(e, "continues"),
		.half = number_of(e, "half"),
	};

	k.current = k.number == says->current;
	k.recent = says->recent_from && k.number >= says->recent_from;
	if (sealed)
		parse_time(sealed, &k.sealed_ns);
	return k;
}

/* What a later epoch may continue. Each of several nodes is put together from parts that say they are whole. */
static void find_recent(struct prune *p)
{
	int64_t since_ns = clock_wall_ns() - PATIENCE;
	const json_t *newest = p->count ? json_array_get(p->epochs, p->count - 1) : NULL;

	if (json_object_get(newest, "nodes"))
		return;
	retention_find_saves(p->list, p->count);
	/* Of a remote nobody else says it; the clock of who sealed them may be another. */
	for (size_t i = retention_untold(p->list, p->count); p->target->catalog && i < p->count;
	     i++)
		p->list[i].recent = p->list[i].sealed_ns > since_ns;
}

static int decide(struct prune *p)
{
	size_t count = 0;
	struct mount_says says = {0};
	int code = target_epochs(p->target, &p->epochs);

	if (code != EXIT_DONE)
		return code;
	count = json_array_size(p->epochs);
	if (!p->target->catalog)
		code = look_at_mount(p->target, &says);
	else if (count) /* what the next mount's live tree will be */
		says.current = number_of(json_array_get(p->epochs, count - 1), "epoch");
	if (code != EXIT_DONE)
		return code;
	p->list = calloc(count + 1, sizeof(*p->list));
	p->failed = calloc(count + 1, sizeof(*p->failed));
	if (!p->list || !p->failed)
		return cli_error(EXIT_FAILED, "out of memory");
	for (p->count = 0; p->count < count; p->count++)
		p->list[p->count] = keep_epoch_of(json_array_get(p->epochs, p->count), &says);
	find_recent(p);
	if (retention_decide(&p->policy, p->list, count))
		return cli_error(EXIT_FAILED, "out of memory");
	for (size_t i = 0; i < count; i++)
		p->kept += p->list[i].reasons != 0;
	return EXIT_DONE;
}

/* ---- dropping ---- */

static int drop_all(struct prune *p)
{
	struct progress progress = {.label = "dropping", .counts = true};
	int result = EXIT_DONE;
	char detail[64];

	for (size_t i = 0; i < p->count; i++) {
		int code;

		if (p->list[i].reasons)
			continue;
		/* What else drops here, such as the mount's own `keep`, may have been faster. */
		code = drop_epoch_of(p->target, p->list[i].number, true);
		p->failed[i] = code != EXIT_DONE;
		p->dropped += code == EXIT_DONE;
		if (code != EXIT_DONE && result == EXIT_DONE)
			result = code;
		/* What one cannot do alone, such as a remote that is away, the next will not do either. */
		if (code != EXIT_DONE && code != EXIT_CONFLICT && code != EXIT_NOT_FOUND) {
			for (; i < p->count; i++)
				p->failed[i] = !p->list[i].reasons;
			break;
		}
		snprintf(detail, sizeof(detail), "%zu of %zu epoch%s", p->dropped,
			 p->count - p->kept, plural(p->count - p->kept));
		progress_update(&progress, p->dropped, p->count - p->kept, detail);
	}
	progress_end(&progress);
	if (p->dropped)
		drop_end(p->target);
	return result;
}

/* ---- printing ---- */

static json_t *epoch_object(const struct prune *p, size_t i, bool reasons)
{
	const json_t *e = json_array_get(p->epochs, i);
	json_t *o = json_object(), *words = json_array();
	static const char *const keys[] = {"epoch", "step", "sealed", "complete", "tags"};
	const char *word;

	for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++)
		if (json_object_get(e, keys[k]))
			json_object_set(o, keys[k], json_object_get(e, keys[k]));
	for (unsigned k = 0; (word = retention_reason(p->list[i].reasons, k)); k++)
		json_array_append_new(words, json_string(word));
	if (reasons)
		json_object_set(o, "reasons", words);
	json_decref(words);
	return o;
}

static void print_json(const struct prune *p)
{
	json_t *kept = json_array(), *dropped = json_array(), *failed = json_array(), *all;

	for (size_t i = 0; i < p->count; i++) {
		if (p->list[i].reasons)
			json_array_append_new(kept, epoch_object(p, i, true));
		else
			json_array_append_new(p->failed[i] ? failed : dropped,
					      epoch_object(p, i, false));
	}
	all = json_pack("{s:s, s:b, s:o, s:o, s:o}", "keep", p->text, "dry_run", p->dry_run, "kept",
			kept, "dropped", dropped, "not_dropped", failed);
	if (p->collected)
		json_object_set(all, "gc", p->collected);
	cli_print_json(all, JSON_INDENT(2));
	json_decref(all);
}

static void format_what(const struct prune *p, size_t i, struct buf *out)
{
	unsigned reasons = p->list[i].reasons;
	const char *word;

	if (!reasons)
		buf_printf(out, "%s",
			   p->dry_run	  ? "- would be dropped"
			   : p->failed[i] ? "- is not dropped"
					  : "- dropped");
	for (unsigned k = 0; (word = retention_reason(reasons, k)); k++)
		buf_printf(out, "%s%s", k ? ", " : "", word);
}

static int add_row(const struct prune *p, struct table *t, size_t i)
{
	const json_t *e = json_array_get(p->epochs, i), *tag;
	char epoch[FORMAT_MAX], age[FORMAT_MAX], step[FORMAT_MAX], size[FORMAT_MAX];
	cleanup_buf struct buf what = {0}, tags = {0};
	const struct retention_epoch *k = &p->list[i];
	size_t n;

	snprintf(epoch, sizeof(epoch), "%06" PRIu64, k->number);
	format_age(clock_wall_ns() - k->sealed_ns, age);
	snprintf(step, sizeof(step), "-");
	if (k->has_step)
		snprintf(step, sizeof(step), "%" PRIu64, k->step);
	format_size(number_of(e, "bytes"), size);
	json_array_foreach(json_object_get(e, "tags"), n, tag)
		buf_printf(&tags, "%s%s", n ? " " : "", json_string_value(tag));
	format_what(p, i, &what);
	return table_add(t, (const char *[]){epoch, age, step, size,
					     k->complete  ? "complete"
					     : k->unknown ? "unknown"
							  : "incomplete",
					     buf_str(&what), buf_str(&tags)});
}

static int print_table(const struct prune *p)
{
	static const char *const headers[] = {">EPOCH", ">AGE", ">STEP", ">SIZE",
					      "STATE",	"KEPT", "TAGS"};
	struct table *t = table_new(headers, sizeof(headers) / sizeof(headers[0]));
	int error = t ? 0 : -ENOMEM;

	for (size_t i = p->count; !error && i-- > 0;)
		error = add_row(p, t, i);
	if (!error && p->count)
		table_print(t);
	table_free(t);
	if (error)
		return cli_error(EXIT_FAILED, "out of memory");
	if (p->dry_run)
		printf("%zu epoch%s would stay, %zu would be dropped; nothing was changed\n",
		       p->kept, plural(p->kept), p->count - p->kept);
	else
		printf("%zu epoch%s stay%s, %zu dropped\n", p->count - p->dropped,
		       plural(p->count - p->dropped), plural_of(p->count - p->dropped, "s", ""),
		       p->dropped);
	return EXIT_DONE;
}

/* ---- the command ---- */

/* What was dropped is in the remote by now; and no writer is waited for once we are none. */
static int collect_garbage(struct prune *p)
{
	if (p->target->catalog)
		catalog_release(p->target->catalog);
	p->collect.dry_run = p->dry_run;
	return collect_run(&p->collect, p->target->name, p->json ? &p->collected : NULL);
}

static int prune(struct prune *p)
{
	struct freed before;
	int code = p->dry_run ? EXIT_DONE : drop_begin(p->target), printed = EXIT_DONE;

	if (code == EXIT_DONE)
		code = decide(p);
	if (code != EXIT_DONE)
		return code;
	freed_before(p->target, &before);
	if (!p->dry_run)
		code = drop_all(p);
	if (!p->json)
		printed = print_table(p);
	/* A collection tells more of it. */
	if (p->dropped && !p->json && !p->gc)
		freed_print(p->target, &before);
	if (p->gc && code == EXIT_DONE)
		code = collect_garbage(p);
	if (p->json)
		print_json(p);
	return code != EXIT_DONE ? code : printed;
}

int command_prune(int argc, char **argv)
{
	struct prune p = {.text = getenv("EPOCHFS_KEEP"), .collect.command = "prune"};
	const char *name;
	const struct cli_place places[] = {
		{"keep", NULL, &p.text}, {"dry-run", &p.dry_run, NULL},	    {"json", &p.json, NULL},
		{"gc", &p.gc, NULL},	 {"grace", NULL, &p.collect.grace}, {0}};
	static const struct target_missing needs = {"a TARGET", 0, 1};
	struct target target;
	char why[RETENTION_WHY_MAX];
	int code, count = cli_parse("prune", argc, argv, places, &name, 1, &code);

	if (count < 0)
		return code;
	if (!p.text || !*p.text)
		return cli_usage_error(
			"prune", "needs --keep POLICY, such as --keep last:10,daily:7,tagged");
	if (retention_parse(p.text, &p.policy, why))
		return cli_usage_error("prune", "--keep %s: expected %s", p.text, why);
	if (p.collect.grace && !p.gc)
		return cli_usage_error("prune", "--grace is of --gc: give that, too");
	code = collect_check(&p.collect);
	if (code == EXIT_DONE)
		code = target_open_operands("prune", &needs, &name, &count, &target);
	if (code != EXIT_DONE)
		return code;
	p.target = &target;
	code = prune(&p);
	target_close(&target);
	json_decref(p.epochs);
	json_decref(p.collected);
	free(p.list);
	free(p.failed);
	return code;
}

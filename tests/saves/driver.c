/* SPDX-License-Identifier: Apache-2.0 */
/* A driver of lib/saves that makes no epochs, but says which it would make. */
#include "tests/saves/driver.h"

#include <inttypes.h>

#include "lib/saves/judge_rules.h"
#include "lib/saves/seal_rules.h"

int driver_begin(struct driver *d, struct saves_options o, const char *marker)
{
	struct volume_options defaults;
	int r;

	driver_end(d);
	volume_options_init(&defaults);
	if (marker)
		defaults.marker = (struct globs){{marker}, 1};
	r = rules_new(&defaults, &d->rules);
	o.rules = d->rules;
	d->options = o;
	return r ? r : saves_new(&o, &d->saves);
}

void driver_end(struct driver *d)
{
	saves_free(d->saves);
	rules_free(d->rules);
	buf_free(&d->out);
	*d = (struct driver){0};
}

static int apply(struct driver *d, const struct save_event *e)
{
	uint64_t epoch;
	enum verdict verdict;
	int r = saves_apply(d->saves, e);

	d->now_ns = e->at_ns;
	if (!saves_decided(d->saves, &epoch, &verdict))
		return r;
	buf_printf(&d->out, "decided %" PRIu64 " %s\n", epoch, verdict_name(verdict));
	if (verdict == VERDICT_WHOLE && epoch > d->whole)
		d->whole = epoch;
	return r;
}

static int seal(struct driver *d, const struct seal_rule *rule, bool whole)
{
	struct judged j = saves_judge(d->saves, rule, whole);
	struct save_event e = {.kind = SAVE_SEALED,
			       .at_ns = d->now_ns,
			       .epoch = ++d->epochs,
			       .rule = seal_rule_number(rule),
			       .facts = whole ? SAVE_IS_WHOLE : 0};
	cleanup_buf struct buf why = {0};
	int r;

	saves_put_reason(d->saves, &j, &why);
	buf_printf(&d->out, "seal %" PRIu64 " %s %s %s%s%s\n", e.epoch, rule->id, j.rule->id,
		   verdict_name(judged_verdict(&j)), why.len ? ": " : "", buf_str(&why));
	r = apply(d, &e);
	if (judged_verdict(&j) == VERDICT_WHOLE)
		d->whole = e.epoch;
	return r;
}

static int go_back(struct driver *d)
{
	struct save_event e = {.kind = SAVE_BACK, .at_ns = d->now_ns, .epoch = d->whole};
	int r = saves_dirty(d->saves) ? seal(d, seal_rule_of(1), false) : 0;

	buf_printf(&d->out, "back %" PRIu64 "\n", d->whole);
	return r ? r : apply(d, &e);
}

int driver_before(struct driver *d, const struct save_event *e)
{
	const struct seal_rule *rule = saves_seal_before(d->saves, e);

	if (!rule)
		return 0;
	d->now_ns = e->at_ns;
	return seal(d, rule, false);
}

int driver_tell(struct driver *d, const struct save_event *e)
{
	const struct seal_rule *rule;
	int r = apply(d, e);

	rule = r == 0 ? saves_seal_now(d->saves) : NULL;
	if (rule)
		r = seal(d, rule, e->kind == SAVE_ASKED && e->facts & SAVE_IS_WHOLE);
	if (r == 0 && d->whole && saves_back(d->saves) == BACK_NOW)
		r = go_back(d);
	return r;
}

int driver_remount(struct driver *d, bool pending)
{
	cleanup_buf struct buf known = {0};
	int r;

	saves_put_known(d->saves, &known);
	saves_free(d->saves);
	d->saves = NULL;
	r = saves_new(&d->options, &d->saves);
	if (r == 0)
		r = saves_take_known(d->saves, buf_str(&known));
	if (r == 0)
		r = saves_take_broken(d->saves, buf_str(&known));
	if (r == 0 && pending)
		r = saves_found_pending(d->saves);
	return r;
}

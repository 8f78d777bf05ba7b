/* SPDX-License-Identifier: Apache-2.0 */
/* Doubts of a record or a status as text for people. */
#include "tools/doubts.h"

#include "lib/meta/doubts.h"
#include "lib/meta/listing.h"
#include "lib/util/clock.h"
#include "lib/util/parse.h"

static const char *text_of(const json_t *object, const char *key, const char *fallback)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : fallback;
}

static void put_since(const json_t *doubt, struct buf *out)
{
	json_int_t since = json_integer_value(json_object_get(doubt, "since"));
	json_int_t part = json_integer_value(json_object_get(doubt, "since_part"));
	const char *at = json_string_value(json_object_get(doubt, "at"));
	char age[FORMAT_MAX];
	int64_t ns;

	if (since > 0)
		buf_printf(out, ", in doubt since epoch %" JSON_INTEGER_FORMAT, since);
	else if (part > 0)
		buf_printf(out, ", in doubt since part %" JSON_INTEGER_FORMAT, part);
	if (at && parse_time(at, &ns) == 0) {
		format_age(clock_wall_ns() - ns, age);
		buf_printf(out, " (%s ago)", age);
	}
}

static bool has_companions(const json_t *doubt)
{
	return json_array_size(json_object_get(doubt, "companions")) ||
	       json_array_size(json_object_get(doubt, "companions_bytes"));
}

void doubt_text(const json_t *doubt, struct buf *out)
{
	enum doubt_kind kind = doubt_kind_parse(text_of(doubt, "kind", ""));

	buf_printf(out, "%s: %s", text_of(doubt, "path", "?"), text_of(doubt, "why", "?"));
	put_since(doubt, out);
	buf_printf(out, "; settled by %s%s", doubt_settled_by(kind, has_companions(doubt)),
		   json_is_true(json_object_get(doubt, "counts"))
			   ? ""
			   : " (of an older unit: no epoch is incomplete for it)");
}

json_t *doubts_texts(const json_t *doubts)
{
	json_t *list, *doubt;
	size_t i;

	if (!json_array_size(doubts))
		return NULL;
	list = json_array();
	json_array_foreach((json_t *)(uintptr_t)doubts, i, doubt)
	{
		cleanup_buf struct buf text = {0};

		doubt_text(doubt, &text);
		json_array_append_new(list, listing_string(buf_str(&text)));
	}
	return list;
}

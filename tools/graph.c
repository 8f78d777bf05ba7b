/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/graph.h"

#include <stdbool.h>
#include <string.h>

static uint64_t number(const json_t *e, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(e, key));

	return v > 0 ? (uint64_t)v : 0;
}

/* Of a rollback that is the epoch whose tree it brought back. 0: none. */
static uint64_t made_from(const json_t *epoch)
{
	uint64_t restores = number(epoch, "restores");

	return restores ? restores : number(epoch, "parent");
}

static bool is_there(const struct graph *g, uint64_t wanted)
{
	for (size_t i = 0; i < json_array_size(g->epochs); i++)
		if (number(json_array_get(g->epochs, i), "epoch") == wanted)
			return true;
	return false;
}

/* The lane that waits for it, or a new one. */
static size_t lane_of(struct graph *g, uint64_t wanted)
{
	size_t i = 0;

	while (i < g->count && g->lanes[i] != wanted)
		i++;
	if (i < GRAPH_LANES_MAX && i == g->count)
		g->lanes[g->count++] = wanted;
	return i < GRAPH_LANES_MAX ? i : GRAPH_LANES_MAX - 1;
}

/* All lanes, one of them by another mark. */
static void draw(const struct graph *g, size_t lane, char mark, char ret_text[GRAPH_TEXT_MAX])
{
	size_t len = 0;

	for (size_t i = 0; i < g->count; i++) {
		ret_text[len++] = i == lane ? mark : '|';
		ret_text[len++] = ' ';
	}
	ret_text[len ? len - 1 : 0] = '\0';
}

static void remove_lane(struct graph *g, size_t lane)
{
	g->count--;
	memmove(&g->lanes[lane], &g->lanes[lane + 1], (g->count - lane) * sizeof(g->lanes[0]));
}

/* The lane goes over into one at its left, as in "|/", and under those between them, as in "|_|/". */
static void join(struct graph *g, size_t lane, size_t into, char ret_below[GRAPH_TEXT_MAX])
{
	draw(g, lane, ' ', ret_below);
	for (size_t i = into + 1; i < lane; i++)
		ret_below[2 * i - 1] = '_';
	ret_below[2 * lane - 1] = '/';
	if (lane + 1 == g->count)
		ret_below[2 * lane] = '\0';
	remove_lane(g, lane);
}

void graph_next(struct graph *g, const json_t *epoch, char ret_text[GRAPH_TEXT_MAX],
		char ret_below[GRAPH_TEXT_MAX])
{
	size_t lane = lane_of(g, number(epoch, "epoch")), other = 0;
	uint64_t from = made_from(epoch);

	draw(g, lane, '*', ret_text);
	ret_below[0] = '\0';
	if (!from || !is_there(g, from)) {
		/* What it was made from is dropped: what comes next need not be before it. */
		if (from)
			draw(g, lane, ':', ret_below);
		remove_lane(g, lane);
		return;
	}
	while (other < g->count && (other == lane || g->lanes[other] != from))
		other++;
	g->lanes[lane] = from;
	if (other < g->count)
		join(g, other > lane ? other : lane, other > lane ? lane : other, ret_below);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The layer `fault+URL?...`: faults in front of any remote, to test what stands on it.
 *
 * Parameters are `<operation>.<kind>=<value>`. Operations: put (both ways to put), create
 * (put_if_absent only), get, size, list, delete, all. Kinds:
 *   error    -EIO, and nothing is done
 *   lost     it is done, and then -EIO: the answer was lost
 *   denied   -EACCES, and nothing is done
 *   enospc   -ENOSPC, and nothing is done (put, create)
 *   down     -ECONNREFUSED, and nothing is done
 *   damage   one bit of what a get brings is flipped (get)
 *   short    what a get brings is cut (get)
 *   delay    each call waits this long first: a duration ("200ms")
 * A request of remote_delete_many is one call of delete, of its first key; `only` names all of its keys
 * or none.
 * Values but of delay are probabilities, 0 to 1. Of two that say the same, the later
 * counts. Further:
 *   down=P       the same as all.down=P
 *   seed=N       other random numbers; the fate of the Nth call depends on nothing but seed and N
 *   after=N      the first N calls are spared
 *   times=N      after N calls with a fault (delays not counted) all goes well
 *   only=PREFIX  only keys (and list prefixes) that begin so
 *   control=FILE an absolute path: while that file exists, its content, in this same syntax
 *                (newlines do for `&`), is laid over the parameters of the URL, at each call
 *                again. Replace it by rename.
 *                One that cannot be read or understood makes every call fail with -EINVAL.
 * Every other parameter is left to the inner URL; one with a dot that is not known is -EINVAL.
 */
#include "lib/remote/remote_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "lib/util/cleanup.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/util/parse.h"

#define CONTROL_MAX 4096

enum op { OP_PUT, OP_CREATE, OP_GET, OP_SIZE, OP_LIST, OP_DELETE, OP_COUNT };
enum kind { ERROR, LOST, DENIED, FULL, DOWN, DAMAGE, SHORT, DELAY, KIND_COUNT };

#define BIT(op)	   (1U << (op))
#define ALL_OPS	   (BIT(OP_COUNT) - 1)
#define WRITES	   (BIT(OP_PUT) | BIT(OP_CREATE))
#define NO_LIMIT   UINT64_MAX
#define ARRAY_N(a) (sizeof(a) / sizeof((a)[0]))

static const struct {
	const char *name;
	unsigned ops;
} op_names[] = {
	{"put", WRITES},	{"create", BIT(OP_CREATE)}, {"get", BIT(OP_GET)},
	{"size", BIT(OP_SIZE)}, {"list", BIT(OP_LIST)},	    {"delete", BIT(OP_DELETE)},
	{"all", ALL_OPS},
};

/* Which operations know a kind. */
static const struct {
	const char *name;
	unsigned ops;
} kind_names[KIND_COUNT] = {
	[ERROR] = {"error", ALL_OPS},	  [LOST] = {"lost", ALL_OPS},
	[DENIED] = {"denied", ALL_OPS},	  [FULL] = {"enospc", WRITES},
	[DOWN] = {"down", ALL_OPS},	  [DAMAGE] = {"damage", BIT(OP_GET)},
	[SHORT] = {"short", BIT(OP_GET)}, [DELAY] = {"delay", ALL_OPS},
};

struct spec {
	double chance[OP_COUNT][KIND_COUNT];
	int64_t delay_ns[OP_COUNT];
	uint64_t seed;
	uint64_t after;
	uint64_t times;
	char only[REMOTE_KEY_MAX + 1];
};

struct fault {
	struct remote base;
	struct spec spec; /* of the URL; never changed once open */
	char *control;	  /* NULL: none */
	atomic_ullong calls;
	atomic_ullong faults;
};

/* ---- parameters */

struct parsing {
	struct spec *spec;
	char **control;	      /* NULL: a control file cannot name another */
	struct buf *inherits; /* gets what is the inner URL's; NULL: there is no such thing */
};

static int parse_chance(const char *text, double *ret_chance)
{
	char *end;
	double p;

	if ((text[0] < '0' || text[0] > '9') && text[0] != '.')
		return -EINVAL;
	p = strtod(text, &end);
	if (*end || !(p >= 0 && p <= 1))
		return -EINVAL;
	*ret_chance = p;
	return 0;
}

static int set_fault(struct spec *s, unsigned ops, enum kind kind, const char *value)
{
	int64_t delay_ns = 0;
	double chance = 0;
	int r = kind == DELAY ? parse_duration(value, &delay_ns) : parse_chance(value, &chance);

	if (r < 0)
		return -EINVAL;
	for (unsigned op = 0; op < OP_COUNT; op++) {
		if (!(ops & BIT(op)))
			continue;
		if (kind == DELAY)
			s->delay_ns[op] = delay_ns;
		else
			s->chance[op][kind] = chance;
	}
	return 0;
}

/* `<operation>.<kind>` */
static int set_named_fault(struct spec *s, const char *name, const char *value)
{
	const char *dot = strchr(name, '.');
	unsigned ops = 0;

	for (size_t i = 0; i < ARRAY_N(op_names); i++)
		if (strlen(op_names[i].name) == (size_t)(dot - name) &&
		    strncmp(op_names[i].name, name, (size_t)(dot - name)) == 0)
			ops = op_names[i].ops;
	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		if (strcmp(kind_names[kind].name, dot + 1) == 0 && (ops & kind_names[kind].ops))
			return set_fault(s, ops & kind_names[kind].ops, kind, value);
	return -EINVAL;
}

static int set_only(struct spec *s, const char *value)
{
	if (strlen(value) > REMOTE_KEY_MAX)
		return -EINVAL;
	strcpy(s->only, value);
	return 0;
}

static int set_control(char **control, const char *value)
{
	if (!control || value[0] != '/')
		return -EINVAL;
	free(*control);
	*control = strdup(value);
	return *control ? 0 : -ENOMEM;
}

static int set_param(void *arg, const char *name, const char *value, const char *raw)
{
	struct parsing *p = arg;

	if (strcmp(name, "down") == 0)
		return set_fault(p->spec, ALL_OPS, DOWN, value);
	if (strcmp(name, "seed") == 0)
		return parse_u64(value, &p->spec->seed) < 0 ? -EINVAL : 0;
	if (strcmp(name, "after") == 0)
		return parse_u64(value, &p->spec->after) < 0 ? -EINVAL : 0;
	if (strcmp(name, "times") == 0)
		return parse_u64(value, &p->spec->times) < 0 ? -EINVAL : 0;
	if (strcmp(name, "only") == 0)
		return set_only(p->spec, value);
	if (strcmp(name, "control") == 0)
		return set_control(p->control, value);
	if (strchr(name, '.'))
		return set_named_fault(p->spec, name, value);
	if (!p->inherits)
		return -EINVAL;
	buf_printf(p->inherits, "%c%s", p->inherits->len ? '&' : '?', raw);
	return buf_error(p->inherits);
}

/* Lays the control file over the spec: 0 (also where there is none) or -EINVAL. */
static int read_control(const struct fault *f, struct spec *spec)
{
	struct buf cleanup_buf text = {0};
	struct parsing p = {.spec = spec};
	int r;

	if (!f->control)
		return 0;
	r = io_read_file(AT_FDCWD, f->control, CONTROL_MAX, &text);
	if (r == -ENOENT)
		return 0;
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] == '\n')
			text.data[i] = '&';
	if (r == 0)
		r = remote_url_each_param(buf_str(&text), set_param, &p);
	if (r == 0)
		return 0;
	log_error("%s: the control file %s cannot be used: %s", f->base.name, f->control,
		  strerror(-r));
	return -EINVAL;
}

/* ---- what befalls a call */

struct fate {
	bool hit[KIND_COUNT];
	uint64_t random;
};

/* splitmix64, by Sebastiano Vigna (public domain): good enough and free of state to share. */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Draws for each kind, always as many, so that one kind's chance does not move another's. */
static void draw(struct fault *f, const struct spec *s, enum op op, uint64_t call,
		 struct fate *ret_fate)
{
	uint64_t state = s->seed + call * UINT64_C(0xd1342543de82ef95);
	struct fate fate = {0};
	bool any = false;

	for (unsigned kind = 0; kind < DELAY; kind++) {
		double x = (double)(next_random(&state) >> 11) * 0x1p-53;

		fate.hit[kind] = x < s->chance[op][kind];
		any |= fate.hit[kind];
	}
	fate.random = next_random(&state);
	if (any && atomic_fetch_add(&f->faults, 1) < s->times)
		*ret_fate = fate;
}

/* Before the inner call: what is to happen after it, or the error to give instead of it. */
static int begin(struct fault *f, enum op op, const char *key, struct fate *ret_fate)
{
	static const struct {
		enum kind kind;
		int err;
	} refusals[] = {{DOWN, -ECONNREFUSED}, {DENIED, -EACCES}, {FULL, -ENOSPC}, {ERROR, -EIO}};
	uint64_t call = atomic_fetch_add(&f->calls, 1);
	struct spec s = f->spec;
	int r = read_control(f, &s);

	*ret_fate = (struct fate){0};
	if (r < 0)
		return r;
	if (call < s.after || strncmp(key, s.only, strlen(s.only)) != 0)
		return 0;
	if (s.delay_ns[op] > 0) {
		r = remote_sleep(&f->base, s.delay_ns[op]);
		if (r < 0)
			return r;
	}
	draw(f, &s, op, call, ret_fate);
	for (size_t i = 0; i < ARRAY_N(refusals); i++)
		if (ret_fate->hit[refusals[i].kind])
			return refusals[i].err;
	return 0;
}

/* After it: loses the answer, whatever it was. */
static int end(const struct fate *fate, int err)
{
	return fate->hit[LOST] ? -EIO : err;
}

static struct fault *fault_of(struct remote *r)
{
	return (struct fault *)r;
}

static int fault_put(struct remote *r, const char *key, const void *data, size_t len)
{
	struct fate fate;
	int err = begin(fault_of(r), OP_PUT, key, &fate);

	return err < 0 ? err : end(&fate, remote_put(r->inner, key, data, len));
}

static int fault_put_if_absent(struct remote *r, const char *key, const void *data, size_t len)
{
	struct fate fate;
	int err = begin(fault_of(r), OP_CREATE, key, &fate);

	return err < 0 ? err : end(&fate, remote_put_if_absent(r->inner, key, data, len));
}

static int fault_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		     struct buf *out)
{
	struct fate fate;
	size_t before = out->len;
	int err = begin(fault_of(r), OP_GET, key, &fate);

	if (err == 0)
		err = end(&fate, remote_get(r->inner, key, offset, len, out));
	if (err < 0) {
		out->len = before;
		return err;
	}
	if (fate.hit[SHORT] && out->len > before)
		out->len = before + fate.random % (out->len - before);
	if (fate.hit[DAMAGE] && out->len > before)
		out->data[before + (fate.random >> 3) % (out->len - before)] ^=
			(uint8_t)(1U << (fate.random & 7));
	return 0;
}

static int fault_size(struct remote *r, const char *key, uint64_t *ret_size)
{
	struct fate fate;
	uint64_t size = 0;
	int err = begin(fault_of(r), OP_SIZE, key, &fate);

	if (err == 0)
		err = end(&fate, remote_size(r->inner, key, &size));
	if (err == 0)
		*ret_size = size;
	return err;
}

static int fault_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	struct fate fate;
	int err = begin(fault_of(r), OP_LIST, prefix, &fate);

	return err < 0 ? err : end(&fate, remote_list(r->inner, prefix, fn, arg));
}

static int fault_delete(struct remote *r, const char *key)
{
	struct fate fate;
	int err = begin(fault_of(r), OP_DELETE, key, &fate);

	return err < 0 ? err : end(&fate, remote_delete(r->inner, key));
}

/* How many of the first keys share a fate: `only` names all of them or none. */
static size_t sharing_fate(const struct fault *f, const char *const *keys, size_t count)
{
	struct spec s = f->spec;
	size_t n = 1, len;
	bool named;

	/* What cannot be read fails the call as a whole. */
	if (read_control(f, &s) < 0)
		return n;
	len = strlen(s.only);
	named = strncmp(keys[0], s.only, len) == 0;
	while (n < count && (strncmp(keys[n], s.only, len) == 0) == named)
		n++;
	return n;
}

static int fault_delete_batch(struct remote *r, const char *const *keys, size_t *count)
{
	struct fate fate;
	size_t sharing = sharing_fate(fault_of(r), keys, *count);
	int err = begin(fault_of(r), OP_DELETE, keys[0], &fate);

	*count = err < 0 ? 1 : sharing;
	return err < 0 ? err : end(&fate, remote_delete_batch(r->inner, keys, count));
}

static void fault_release(struct remote *r)
{
	free(fault_of(r)->control);
}

static const struct remote_ops fault_ops = {
	.put = fault_put,
	.put_if_absent = fault_put_if_absent,
	.get = fault_get,
	.size = fault_size,
	.list = fault_list,
	.delete = fault_delete,
	.delete_batch = fault_delete_batch,
	.release = fault_release,
};

/* Takes the own parameters out of the query and opens what is left. */
static int open_inner(struct fault *f, const struct remote_url *url,
		      const struct remote_limits *limits, remote_open_inner_fn *open,
		      struct remote **ret_inner)
{
	struct buf cleanup_buf inherits = {0};
	struct buf cleanup_buf inner = {0};
	struct parsing p = {.spec = &f->spec, .control = &f->control, .inherits = &inherits};
	int r;

	f->spec.times = NO_LIMIT;
	r = remote_url_each_param(url->query, set_param, &p);
	if (r < 0)
		return r;
	buf_printf(&inner, "%s%s", url->rest, buf_str(&inherits));
	r = buf_error(&inner);
	return r < 0 ? r : open(buf_str(&inner), limits, ret_inner);
}

int remote_fault_open(const struct remote_url *url, const char *text,
		      const struct remote_limits *limits, remote_open_inner_fn *open,
		      struct remote **ret_remote)
{
	struct fault *f = calloc(1, sizeof(*f));
	struct remote *inner = NULL;
	int r;

	if (!f)
		return -ENOMEM;
	r = open_inner(f, url, limits, open, &inner);
	if (r == 0)
		r = remote_init(&f->base, &fault_ops, text, inner);
	if (r < 0) {
		remote_close(inner);
		free(f->control);
		free(f);
		return r;
	}
	*ret_remote = &f->base;
	return 0;
}

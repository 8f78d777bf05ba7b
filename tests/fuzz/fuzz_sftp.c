/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: what an SFTP server sends. */
#include "lib/net/sftp_wire.h"
#include "tests/fuzz/fuzz.h"

static void names(struct reader r, size_t len)
{
	uint32_t count = sftp_u32(&r);

	for (uint32_t i = 0; i < count; i++) {
		struct sftp_attrs attrs;
		const uint8_t *name;
		size_t name_len;

		if (!sftp_next_name(&r, &name, &name_len, &attrs))
			return;
		fuzz_assert(name && name_len <= len);
		fuzz_assert(!sftp_is_file(&attrs) || !sftp_is_dir(&attrs));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	uint8_t *copy = fuzz_copy(data, len);
	int64_t packet = sftp_packet_len(copy, len);
	struct sftp_extensions extensions;
	struct sftp_attrs attrs;
	struct reader r;
	size_t part;

	fuzz_assert(packet <= (int64_t)len);
	if (packet > 0) {
		fuzz_assert(packet >= 9);
		r = reader_of(copy + 9, (size_t)packet - 9);
		names(r, len);
		sftp_extensions(&(struct reader){.p = r.p, .end = r.end}, &extensions);
		sftp_attrs(&(struct reader){.p = r.p, .end = r.end}, &attrs);
		fuzz_assert(!sftp_string(&r, &part) || part <= len);
	}
	free(copy);
	return 0;
}

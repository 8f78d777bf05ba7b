/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: what gives credentials: JSON of programs and metadata services, XML of STS. */
#include "lib/net/credential_sources.h"
#include "tests/fuzz/fuzz.h"

static void check(int error, struct credentials *c, bool keys)
{
	if (error) {
		fuzz_assert(!c->key && !c->secret && !c->token);
		return;
	}
	fuzz_assert(keys ? c->key && c->secret : c->token && c->token[0]);
	credentials_free(c);
	*c = (struct credentials){0};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	uint8_t *copy = fuzz_copy(data, len);
	struct credentials c = {0};

	check(aws_credentials_from_json(copy, len, "Token", &c), &c, true);
	check(aws_credentials_from_json(copy, len, "SessionToken", &c), &c, true);
	check(aws_credentials_from_xml(copy, len, &c), &c, true);
	check(gs_token_from_json(copy, len, &c), &c, false);
	free(copy);
	return 0;
}

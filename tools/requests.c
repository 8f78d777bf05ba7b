/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs commit, wait, rollback: one request to the mount each. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/util/cleanup.h"
#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/progress.h"
#include "tools/target.h"

/* Prints {"epoch": N} or a sentence; takes the response. */
static int report(json_t *response, bool json, const char *sentence)
{
	if (json) {
		cli_print_json(response, JSON_INDENT(2));
	} else if (json_object_get(response, "part")) {
		printf("part %" JSON_INTEGER_FORMAT " of node ",
		       json_integer_value(json_object_get(response, "part")));
		cli_put(json_string_value(json_object_get(response, "node")));
		printf(" %s\n", sentence);
	} else {
		printf("epoch %06" JSON_INTEGER_FORMAT " %s\n",
		       json_integer_value(json_object_get(response, "epoch")), sentence);
	}
	json_decref(response);
	return EXIT_DONE;
}

/* What a metadata writer says of the checkpoint. */
struct metadata {
	const char *db_type, *db_prefix, *path_type, *path_prefix, *node_names;
};

/* Texts are separated by commas. */
static json_t *split_names(const char *text)
{
	json_t *names = json_array();

	for (size_t len; text; text = text[len] ? text + len + 1 : NULL) {
		len = strcspn(text, ",");
		json_array_append_new(names, json_stringn(text, len));
	}
	return names;
}

/* NULL where nothing is said. */
static json_t *metadata_object(const struct metadata *m)
{
	json_t *object =
		json_pack("{s:s*, s:s*, s:s*, s:s*}", "db_type", m->db_type, "db_prefix",
			  m->db_prefix, "path_type", m->path_type, "path_prefix", m->path_prefix);

	if (m->node_names)
		json_object_set_new(object, "node_names", split_names(m->node_names));
	if (json_object_size(object))
		return object;
	json_decref(object);
	return NULL;
}

/* The first operand is a mount point then. */
static int take_mount(const char *command, const struct target_missing *needs,
		      const char **operands, int *count, char **ret_mount)
{
	int code = target_complete(command, needs, operands, count, ret_mount);

	return code == EXIT_DONE ? target_need_mount(operands[0], command) : code;
}

int command_commit(int argc, char **argv)
{
	const char *tag = NULL, *step = NULL, *message = NULL, *path = NULL;
	cleanup_free char *here = NULL;
	struct metadata said = {0};
	bool json = false, whole = false;
	const struct cli_place places[] = {{"json", &json, NULL},
					   {"whole", &whole, NULL},
					   {"tag", NULL, &tag},
					   {"step", NULL, &step},
					   {"message", NULL, &message},
					   {"db-type", NULL, &said.db_type},
					   {"db-prefix", NULL, &said.db_prefix},
					   {"path-type", NULL, &said.path_type},
					   {"path-prefix", NULL, &said.path_prefix},
					   {"node-names", NULL, &said.node_names},
					   {0}};
	static const struct target_missing needs = {"a DIRECTORY", 0, 1};
	json_t *request, *response, *metadata;
	uint64_t number;
	int code, count = cli_parse("commit", argc, argv, places, &path, 1, &code);

	if (count < 0)
		return code;
	if (step && (parse_u64(step, &number) || number > INT64_MAX))
		return cli_usage_error("commit", "--step %s: expected a number", step);
	code = take_mount("commit", &needs, &path, &count, &here);
	if (code != EXIT_DONE)
		return code;
	request = json_pack("{s:s, s:s*, s:s*}", "op", "commit", "tag", tag, "message", message);
	metadata = metadata_object(&said);
	if (metadata)
		json_object_set_new(request, "metadata", metadata);
	if (whole)
		json_object_set_new(request, "whole", json_true());
	if (step)
		json_object_set_new(request, "step", json_integer((json_int_t)number));
	code = client_call(path, request, &response);
	return code == EXIT_DONE ? report(response, json, "is sealed") : code;
}

/* Seals what is closed and gives the number of the newest epoch, or resolves the epoch that was named. */
static int epoch_to_wait_for(const char *path, const char *epoch, json_t **ret_response)
{
	json_t *request = epoch ? json_pack("{s:s, s:s}", "op", "resolve", "epoch", epoch)
				: json_pack("{s:s}", "op", "seal");

	return client_call(path, request, ret_response);
}

int command_wait(int argc, char **argv)
{
	const char *timeout = NULL, *operands[2] = {NULL};
	cleanup_free char *here = NULL;
	bool json = false;
	const struct cli_place places[] = {{"json", &json, NULL}, {"timeout", NULL, &timeout}, {0}};
	static const struct target_missing needs = {"a DIRECTORY", 0, 2};
	int64_t timeout_ns = -1;
	json_t *response = NULL;
	uint64_t number;
	int code, count = cli_parse("wait", argc, argv, places, operands, 2, &code);

	if (count < 0)
		return code;
	if (timeout && parse_duration(timeout, &timeout_ns))
		return cli_usage_error("wait", "--timeout %s: expected a time, such as 30s",
				       timeout);
	code = take_mount("wait", &needs, operands, &count, &here);
	if (code == EXIT_DONE)
		code = epoch_to_wait_for(operands[0], count > 1 ? operands[1] : NULL, &response);
	if (code != EXIT_DONE)
		return code;
	number = (uint64_t)json_integer_value(json_object_get(response, "epoch"));
	code = drain_epoch_with_progress(operands[0], number, timeout_ns);
	if (code == EXIT_DONE && number == 0 && !json && !json_object_get(response, "part")) {
		json_decref(response);
		puts("there is no epoch yet, and nothing to seal");
		return code;
	}
	if (code == EXIT_DONE)
		return report(response, json, "is durable");
	json_decref(response);
	return code;
}

static int report_rollback(json_t *response, bool json)
{
	json_int_t restores = json_integer_value(json_object_get(response, "restores"));
	json_int_t before = json_integer_value(json_object_get(response, "before"));

	/* A mount by an older epochfs tells the new number alone. */
	if (json || !restores)
		return report(response, json, "is live");
	printf("live is epoch %06" JSON_INTEGER_FORMAT " again, as %06" JSON_INTEGER_FORMAT
	       "; before it was %06" JSON_INTEGER_FORMAT "\n",
	       restores, json_integer_value(json_object_get(response, "epoch")), before);
	json_decref(response);
	return EXIT_DONE;
}

int command_rollback(int argc, char **argv)
{
	cleanup_free char *here = NULL;
	const char *operands[2];
	bool json = false;
	const struct cli_place places[] = {{"json", &json, NULL}, {0}};
	static const struct target_missing needs = {"a DIRECTORY and an EPOCH", 1, 2};
	json_t *response;
	int code, count = cli_parse("rollback", argc, argv, places, operands, 2, &code);

	if (count < 0)
		return code;
	code = take_mount("rollback", &needs, operands, &count, &here);
	if (code == EXIT_DONE)
		code = client_call(operands[0],
				   json_pack("{s:s, s:s}", "op", "rollback", "epoch", operands[1]),
				   &response);
	return code == EXIT_DONE ? report_rollback(response, json) : code;
}

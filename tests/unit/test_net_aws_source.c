/* SPDX-License-Identifier: Apache-2.0 */
/* Each link of the chain of Amazon's credentials, against a server in this process that plays the
 * metadata services and STS, and Google's. */
#include "lib/net/credential_sources.h"

#include "lib/net/open.h"
#include "tests/unit/aws_unit.h"
#include "tests/unit/http_unit.h"

#define OK_HEAD "HTTP/1.1 200 OK\r\n"
#define JSON(token)                                                                                \
	"{\"Code\":\"Success\",\"AccessKeyId\":\"AKID\",\"SecretAccessKey\":\"HUSH\"," token       \
	"\"Expiration\":\"2033-05-18T03:33:20Z\"}"
#define STS_XML                                                                                      \
	"<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult>" \
	"<Credentials><AccessKeyId>ROLEKEY</AccessKeyId><SecretAccessKey>ROLESECRET"                 \
	"</SecretAccessKey><SessionToken>ROLETOKEN</SessionToken>"                                   \
	"<Expiration>2033-05-18T03:33:20Z</Expiration></Credentials></AssumeRoleResult>"             \
	"</AssumeRoleResponse>"
#define EXPIRES_NS (INT64_C(2000000000) * NS_PER_S)

/* The answers of scenes, which live as long as the process does. */
static char *answers[64];
static size_t answer_count;

static struct scene says(const char *status, const char *body)
{
	char **answer = &answers[answer_count++];

	ck_assert_uint_le(answer_count, sizeof(answers) / sizeof(answers[0]));
	ck_assert_int_gt(asprintf(answer, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s", status,
				  strlen(body), body),
			 0);
	return (struct scene){.answer = *answer, .proceed = true};
}

static struct remote *owner;

/* What the chain gives for a URL in the present environment. */
static int fetch(const char *text, struct credentials *ret_credentials)
{
	struct remote_url cleanup_remote_url url = {0};
	struct aws_files cleanup_aws_files files = {0};
	struct s3_place cleanup_s3_place place = {0};
	struct aws_source *source = NULL;
	cleanup_free char *path = NULL;
	int r;

	if (!owner)
		unit_ok(remote_open("memory:owner", &owner));
	unit_ok(remote_url_parse(text, &url));
	/* A file that cannot be read is for the fetch to tell. */
	(void)aws_files_read(&files, &path);
	unit_ok(s3_place_resolve(&url, &files, &place));
	unit_ok(aws_source_new(owner, &place, &source));
	r = aws_source_fetch(source, ret_credentials);
	aws_source_free(source);
	return r;
}

static void assert_gives_from(const char *url, const char *key, const char *secret,
			      const char *token)
{
	struct credentials cleanup_credentials c = {0};
	char text[REMOTE_TEXT_MAX];
	int r = fetch(url, &c);

	ck_assert_msg(r == 0, "%d: %s", r, remote_strerror(owner, r, text));
	ck_assert_str_eq(c.key, key);
	ck_assert_str_eq(c.secret, secret);
	ck_assert_pstr_eq(c.token, token);
}

static void assert_gives(const char *key, const char *secret, const char *token)
{
	assert_gives_from("s3://bkt/x", key, secret, token);
}

/* The chain ends with this error, and says this. */
static void assert_fails(const char *url, int error, const char *said)
{
	struct credentials cleanup_credentials c = {0};
	char text[REMOTE_TEXT_MAX];

	unit_error(fetch(url, &c), error);
	remote_strerror(owner, error, text);
	ck_assert_msg(strstr(text, said) != NULL, "%s", text);
	ck_assert_ptr_null(strstr(text, "HUSH"));
}

/* ---- the environment and files */

START_TEST(the_environment_counts_first)
{
	aws_unit_environment();
	assert_fails("s3://bkt", -EACCES, "no credentials found: set AWS_ACCESS_KEY_ID");
	aws_unit_file("credentials", "[default]\naws_access_key_id=F\naws_secret_access_key=G\n");
	assert_gives("F", "G", NULL);
	setenv("AWS_ACCESS_KEY_ID", "E", 1);
	assert_fails("s3://bkt", -EACCES, "AWS_SECRET_ACCESS_KEY is not");
	setenv("AWS_SECRET_ACCESS_KEY", "S", 1);
	assert_gives("E", "S", NULL);
	setenv("AWS_SESSION_TOKEN", "T", 1);
	assert_gives("E", "S", "T");
	/* A profile in the URL is the only source. */
	assert_gives_from("s3://bkt/x?profile=default", "F", "G", NULL);
	assert_fails("s3://bkt?profile=nobody", -EACCES, "profile nobody has no credentials");
}
END_TEST

START_TEST(profiles_are_found_in_both_files)
{
	aws_unit_environment();
	aws_unit_file("credentials", "[a]\naws_access_key_id=KA\naws_secret_access_key=SA\n"
				     "aws_session_token=TA\n");
	aws_unit_file("config", "[profile b]\naws_access_key_id=KB\naws_secret_access_key=SB\n");
	setenv("AWS_PROFILE", "a", 1);
	assert_gives("KA", "SA", "TA");
	assert_gives_from("s3://bkt/x?profile=b", "KB", "SB", NULL);
	setenv("AWS_PROFILE", "b", 1);
	assert_gives("KB", "SB", NULL);
	setenv("AWS_PROFILE", "c", 1);
	assert_fails("s3://bkt", -EACCES, "profile c has no credentials");
}
END_TEST

START_TEST(other_files_may_be_named)
{
	cleanup_free char *dir = unit_dir(), *path = unit_path(dir, "keys");

	aws_unit_environment();
	unit_ok(io_replace_file(AT_FDCWD, path,
				"[default]\naws_access_key_id=K\naws_secret_access_key=S\n", 55));
	setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
	assert_gives("K", "S", NULL);
	setenv("AWS_SHARED_CREDENTIALS_FILE", dir, 1);
	assert_fails("s3://bkt", -EACCES, "cannot be read");
}
END_TEST

START_TEST(what_a_mount_cannot_do_is_told)
{
	aws_unit_environment();
	aws_unit_file("config",
		      "[profile sso]\nsso_session = x\n[profile mfa]\nrole_arn = r\n"
		      "mfa_serial = m\nsource_profile = sso\n[profile round]\n"
		      "role_arn = r\nsource_profile = trip\n[profile trip]\nrole_arn = r\n"
		      "source_profile = round\n[profile alone]\nrole_arn = r\n");
	assert_fails("s3://bkt?profile=sso", -EACCES, "aws configure export-credentials");
	assert_fails("s3://bkt?profile=mfa", -EACCES, "second factor");
	assert_fails("s3://bkt?profile=round", -EACCES, "circle");
	assert_fails("s3://bkt?profile=alone", -EACCES, "needs a source_profile");
}
END_TEST

START_TEST(a_program_may_print_them)
{
	aws_unit_environment();
	aws_unit_file(
		"config",
		"[default]\ncredential_process = printf '{\"Version\":1,\"AccessKeyId\":\"%s\","
		"\"SecretAccessKey\":\"PS\",\"SessionToken\":\"PT\",\"Expiration\":"
		"\"2033-05-18T03:33:20+00:00\"}' PK\n"
		"[profile fails]\ncredential_process = echo went wrong >&2; exit 1\n"
		"[profile lies]\ncredential_process = echo '{\"AccessKeyId\":\"HUSH\"}'\n");
	assert_gives("PK", "PS", "PT");
	assert_fails("s3://bkt?profile=fails", -EACCES, "went wrong");
	assert_fails("s3://bkt?profile=lies", -EACCES, "printed no credentials");
}
END_TEST

/* ---- metadata services */

START_TEST(the_container_gives_them_for_its_token)
{
	struct scene scenes[] = {says("200 OK", JSON("\"Token\":\"CTOKEN\","))};
	struct credentials cleanup_credentials c = {0};
	cleanup_free char *dir = unit_dir(), *file = unit_path(dir, "token");
	struct server s;
	char url[128];

	aws_unit_environment();
	server_start(&s, scenes, 1);
	snprintf(url, sizeof(url), "%s/v1/credentials?x=1", s.base);
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Basic abc", 1);
	unit_ok(fetch("s3://bkt", &c));
	ck_assert_str_eq(c.key, "AKID");
	ck_assert_str_eq(c.token, "CTOKEN");
	ck_assert_int_eq(c.expires_ns, EXPIRES_NS);
	ck_assert(server_was_told(&s, "GET /v1/credentials?x=1 "));
	ck_assert(server_was_told(&s, "Authorization: Basic abc\r\n"));
	unit_ok(io_replace_file(AT_FDCWD, file, "from-file\n", 10));
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file, 1);
	assert_gives("AKID", "HUSH", "CTOKEN");
	ck_assert(server_was_told(&s, "Authorization: from-file\r\n"));
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/nonexistent", 1);
	assert_fails("s3://bkt", -EACCES, "/nonexistent");
	server_stop(&s);
}
END_TEST

START_TEST(a_container_token_goes_to_no_stranger)
{
	static const char *const strangers[] = {
		"http://example.org/x", "http://127.0.0.1.example.org/",
		"http://localhost@h/",	"http://169.254.170.24/",
		"ftp://localhost/",	"/relative"};

	aws_unit_environment();
	for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
		setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", strangers[i], 1);
		assert_fails("s3://bkt", -EACCES, "neither https nor on this host");
	}
}
END_TEST

START_TEST(a_container_that_fails_ends_the_search)
{
	struct scene scenes[] = {says("500 Oops", ""), says("403 No", ""), says("200 OK", "{}"),
				 says("200 OK", "no json"),
				 says("200 OK", "{\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"b\","
						"\"Expiration\":\"tomorrow\"}")};
	struct server s;

	aws_unit_environment();
	server_start(&s, scenes, 5);
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", s.base, 1);
	assert_fails("s3://bkt", -EIO, "status 500");
	assert_fails("s3://bkt", -EACCES, "status 403");
	for (int i = 0; i < 3; i++)
		assert_fails("s3://bkt", -EACCES, "container's credentials service gave none");
	server_stop(&s);
}
END_TEST

START_TEST(the_instance_gives_them_by_a_session)
{
	struct scene scenes[] = {says("200 OK", "SESSION=="), says("200 OK", "my-role\nother\n"),
				 says("200 OK", JSON("\"Token\":\"ITOKEN\","))};
	struct server s;

	aws_unit_environment();
	setenv("AWS_EC2_METADATA_DISABLED", "false", 1);
	server_start(&s, scenes, 3);
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", s.base, 1);
	assert_gives("AKID", "HUSH", "ITOKEN");
	ck_assert(server_was_told(&s, "PUT /latest/api/token "));
	ck_assert(server_was_told(&s, "X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n"));
	ck_assert(server_was_told(&s, "GET /latest/meta-data/iam/security-credentials/ "));
	ck_assert(server_was_told(&s, "GET /latest/meta-data/iam/security-credentials/my-role "));
	ck_assert(server_was_told(&s, "X-aws-ec2-metadata-token: SESSION==\r\n"));
	server_stop(&s);
}
END_TEST

START_TEST(an_instance_without_a_role_or_session_has_none)
{
	struct scene cases[][3] = {
		{says("200 OK", "T"), says("404 None", ""), says("404 None", "")},
		{says("200 OK", "T"), says("200 OK", ""), says("404 None", "")},
		{says("200 OK", "T"), says("200 OK", "../../x"), says("404 None", "")},
		{says("403 No", ""), says("403 No", ""), says("403 No", "")},
		{says("200 OK", "bad\r\nHeader: x"), says("403 No", ""), says("403 No", "")},
		{{.answer = "", .then = CLOSE}, {.answer = "", .then = CLOSE}, {.then = CLOSE}},
	};
	struct server s;

	aws_unit_environment();
	setenv("AWS_EC2_METADATA_DISABLED", "false", 1);
	server_start(&s, cases[_i], 3);
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", s.base, 1);
	assert_fails("s3://bkt", -EACCES, "no credentials found");
	server_stop(&s);
	/* Nobody there at all. */
	assert_fails("s3://bkt", -EACCES, "no credentials found");
}
END_TEST

START_TEST(an_instance_that_was_there_has_failed)
{
	struct scene scenes[] = {says("200 OK", "T"), says("200 OK", "r"),
				 says("200 OK", JSON("\"Token\":\"t\",")), says("500 Oops", "")};
	struct s3_place place = {.profile = (char *)"default", .region = (char *)"r"};
	struct credentials cleanup_credentials c = {0}, none = {0};
	struct aws_source *source;
	struct server s;

	aws_unit_environment();
	setenv("AWS_EC2_METADATA_DISABLED", "false", 1);
	server_start(&s, scenes, 4);
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", s.base, 1);
	unit_ok(remote_open("memory:owner", &owner));
	unit_ok(aws_source_new(owner, &place, &source));
	unit_ok(aws_source_fetch(source, &c));
	unit_error(aws_source_fetch(source, &none), -EIO);
	aws_source_free(source);
	server_stop(&s);
}
END_TEST

/* ---- STS */

START_TEST(a_web_identity_is_exchanged_for_a_role)
{
	struct scene scenes[] = {says("200 OK", STS_XML)};
	struct buf cleanup_buf body = {0};
	cleanup_free char *dir = unit_dir(), *file = unit_path(dir, "jwt");
	struct server s;

	aws_unit_environment();
	server_start(&s, scenes, 1);
	unit_ok(io_replace_file(AT_FDCWD, file, "ey.J+w/t=\n", 10));
	setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file, 1);
	setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r", 1);
	setenv("AWS_ENDPOINT_URL_STS", s.base, 1);
	assert_gives("ROLEKEY", "ROLESECRET", "ROLETOKEN");
	server_bodies(&s, &body);
	ck_assert_str_eq(buf_str(&body),
			 "Action=AssumeRoleWithWebIdentity&Version=2011-06-15"
			 "&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=epochfs"
			 "&WebIdentityToken=ey.J%2Bw%2Ft%3D");
	ck_assert(server_was_told(&s, "POST / "));
	ck_assert(server_was_told(&s, "Content-Type: application/x-www-form-urlencoded\r\n"));
	ck_assert(!server_was_told(&s, "Authorization:"));
	setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nonexistent", 1);
	assert_fails("s3://bkt", -EACCES, "/nonexistent");
	server_stop(&s);
}
END_TEST

START_TEST(a_role_is_asked_for_with_the_keys_of_its_source)
{
	struct scene scenes[] = {says("200 OK", STS_XML)};
	struct buf cleanup_buf body = {0};
	struct server s;

	aws_unit_environment();
	server_start(&s, scenes, 1);
	aws_unit_file("config",
		      "[profile r]\nrole_arn = arn\nsource_profile = base\nexternal_id = e\n"
		      "role_session_name = me\nduration_seconds = 900\nregion = eu-1\n"
		      "[profile own]\nrole_arn = arn\nsource_profile = own\n"
		      "aws_access_key_id=OK\naws_secret_access_key=OS\n"
		      "[profile env]\nrole_arn = arn\ncredential_source = Environment\n");
	aws_unit_file("credentials", "[base]\naws_access_key_id=BK\naws_secret_access_key=BS\n"
				     "aws_session_token=BT\n");
	setenv("AWS_ENDPOINT_URL", s.base, 1);
	assert_gives_from("s3://bkt/x?profile=r", "ROLEKEY", "ROLESECRET", "ROLETOKEN");
	server_bodies(&s, &body);
	ck_assert_str_eq(buf_str(&body), "Action=AssumeRole&Version=2011-06-15&RoleArn=arn"
					 "&RoleSessionName=me&DurationSeconds=900&ExternalId=e");
	ck_assert(server_was_told(&s, "Authorization: AWS4-HMAC-SHA256 Credential=BK/"));
	ck_assert(server_was_told(&s, "/eu-1/sts/aws4_request"));
	ck_assert(server_was_told(&s, "x-amz-security-token: BT\r\n"));
	server_forget(&s);
	assert_gives_from("s3://bkt/x?profile=own", "ROLEKEY", "ROLESECRET", "ROLETOKEN");
	ck_assert(server_was_told(&s, "Credential=OK/"));
	setenv("AWS_ACCESS_KEY_ID", "EK", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "ES", 1);
	assert_gives_from("s3://bkt/x?profile=env", "ROLEKEY", "ROLESECRET", "ROLETOKEN");
	ck_assert(server_was_told(&s, "Credential=EK/"));
	server_stop(&s);
}
END_TEST

START_TEST(what_sts_refuses_is_told)
{
	struct scene scenes[] = {
		says("403 No", "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not for you"
			       "</Message></Error></ErrorResponse>"),
		says("503 Later", ""), says("200 OK", "<x/>"), says("200 OK", "HUSH no xml")};
	struct server s;

	aws_unit_environment();
	server_start(&s, scenes, 4);
	aws_unit_file("config",
		      "[default]\nrole_arn = the-role\nsource_profile = base\n"
		      "[profile base]\naws_access_key_id=K\naws_secret_access_key=HUSH\n");
	setenv("AWS_ENDPOINT_URL_STS", s.base, 1);
	assert_fails("s3://bkt", -EACCES, "the-role: status 403 AccessDenied not for you");
	assert_fails("s3://bkt", -EIO, "status 503");
	assert_fails("s3://bkt", -EIO, "no credentials");
	assert_fails("s3://bkt", -EIO, "no credentials");
	server_stop(&s);
	assert_fails("s3://bkt", -ECONNREFUSED, "does not answer");
}
END_TEST

/* ---- Google */

static int fetch_google(struct credentials *ret_credentials)
{
	struct gs_source *source = NULL;
	int r;

	if (!owner)
		unit_ok(remote_open("memory:owner", &owner));
	unit_ok(gs_source_new(owner, &source));
	r = gs_source_fetch(source, ret_credentials);
	gs_source_free(source);
	return r;
}

START_TEST(googles_are_a_token_a_key_or_the_instances)
{
	struct scene scenes[] = {says("200 OK", "{\"access_token\":\"MT\",\"expires_in\":3599,"
						"\"token_type\":\"Bearer\"}"),
				 says("200 OK", "{\"access_token\":\"MT\"}"), says("404 None", "")};
	struct credentials cleanup_credentials token = {0}, key = {0}, instance = {0}, none = {0};
	int64_t before = clock_wall_ns();
	struct server s;

	aws_unit_environment();
	server_start(&s, scenes, 3);
	setenv("GCE_METADATA_HOST", s.base + strlen("http://"), 1);
	unit_ok(fetch_google(&instance));
	ck_assert_str_eq(instance.token, "MT");
	ck_assert_ptr_null(instance.key);
	ck_assert_int_ge(instance.expires_ns, before + 3599 * NS_PER_S);
	ck_assert(server_was_told(&s, "GET /computeMetadata/v1/instance/service-accounts/default/"
				      "token "));
	ck_assert(server_was_told(&s, "Metadata-Flavor: Google\r\n"));
	unit_error(fetch_google(&none), -EACCES);
	unit_error(fetch_google(&none), -EACCES);
	setenv("GS_ACCESS_KEY_ID", "GK", 1);
	unit_error(fetch_google(&none), -EACCES);
	setenv("GS_SECRET_ACCESS_KEY", "GSECRET", 1);
	unit_ok(fetch_google(&key));
	ck_assert_str_eq(key.key, "GK");
	ck_assert_str_eq(key.secret, "GSECRET");
	ck_assert_ptr_null(key.token);
	setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "BT", 1);
	unit_ok(fetch_google(&token));
	ck_assert_str_eq(token.token, "BT");
	ck_assert_ptr_null(token.key);
	server_stop(&s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_aws_source");
	TCase *t = unit_case(s, "environment and files");

	tcase_add_test(t, the_environment_counts_first);
	tcase_add_test(t, profiles_are_found_in_both_files);
	tcase_add_test(t, other_files_may_be_named);
	tcase_add_test(t, what_a_mount_cannot_do_is_told);
	tcase_add_test(t, a_program_may_print_them);
	t = unit_case(s, "metadata");
	tcase_add_test(t, the_container_gives_them_for_its_token);
	tcase_add_test(t, a_container_token_goes_to_no_stranger);
	tcase_add_test(t, a_container_that_fails_ends_the_search);
	tcase_add_test(t, the_instance_gives_them_by_a_session);
	tcase_add_loop_test(t, an_instance_without_a_role_or_session_has_none, 0, 6);
	tcase_add_test(t, an_instance_that_was_there_has_failed);
	t = unit_case(s, "STS");
	tcase_add_test(t, a_web_identity_is_exchanged_for_a_role);
	tcase_add_test(t, a_role_is_asked_for_with_the_keys_of_its_source);
	tcase_add_test(t, what_sts_refuses_is_told);
	t = unit_case(s, "Google");
	tcase_add_test(t, googles_are_a_token_a_key_or_the_instances);
	return unit_run(s);
}

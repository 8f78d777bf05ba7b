/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures: against what Amazon publishes, and what a gateway of Ceph took.
 *
 * From Amazon: the requests of the "Signature Version 4 test suite" that a client of S3 can make (S3
 * wants paths as they are, so those about normalizing paths are not among them), and the examples of
 * "Signature Calculations for the Authorization Header" in the S3 API Reference. */
#include "lib/net/sigv4.h"

#include <curl/curl.h>
#include "lib/util/hash.h"
#include "tests/unit/unit.h"

#define EMPTY	   "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define UNRESERVED "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define HEADERS	   8

/* ---- the test suite */

#define SUITE_AT   1440938160 /* 2015-08-30T12:36:00Z */
#define SUITE_DATE "X-Amz-Date: 20150830T123600Z"
#define SUITE_HOST "Host: example.amazonaws.com"
#define SUITE_URL  "https://example.amazonaws.com"
#define SUITE_TOKEN                                                                                 \
	"AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxf" \
	"pSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPk" \
	"yQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBA" \
	"z+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="

struct suite_case {
	const char *name, *method, *url, *payload;
	const char *headers[HEADERS];
	const char *signed_headers, *signature;
};

static const struct suite_case suite[] = {
	{"get-vanilla",
	 "GET",
	 SUITE_URL "/",
	 "",
	 {SUITE_HOST, SUITE_DATE},
	 "host;x-amz-date",
	 "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
	{"get-vanilla, no path in the URL",
	 "GET",
	 SUITE_URL,
	 "",
	 {SUITE_HOST, SUITE_DATE},
	 "host;x-amz-date",
	 "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
	{"get-vanilla-query-order-key-case",
	 "GET",
	 SUITE_URL "/?Param2=value2&Param1=value1",
	 "",
	 {SUITE_HOST, SUITE_DATE},
	 "host;x-amz-date",
	 "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
	{"get-vanilla-query-order-value",
	 "GET",
	 SUITE_URL "/?Param1=value2&Param1=value1",
	 "",
	 {SUITE_HOST, SUITE_DATE},
	 "host;x-amz-date",
	 "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694"},
	{"get-vanilla-query-order-encoded",
	 "GET",
	 SUITE_URL "/?Param-3=Value3&Param=Value2&%E1%88%B4=Value1",
	 "",
	 {SUITE_HOST, SUITE_DATE},
	 "host;x-amz-date",
	 "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac"},
	{"get-vanilla-query-unreserved",
	 "GET",
	 SUITE_URL "/?" UNRESERVED "=" UNRESERVED,
	 "",
	 {SUITE_HOST, SUITE_DATE},
	 "host;x-amz-date",
	 "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
	{"get-vanilla-utf8-query",
	 "GET",
	 SUITE_URL "/?\xe1\x88\xb4=bar",
	 "",
	 {SUITE_HOST, SUITE_DATE},
	 "host;x-amz-date",
	 "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
	{"get-unreserved",
	 "GET",
	 SUITE_URL "/" UNRESERVED,
	 "",
	 {SUITE_HOST, SUITE_DATE},
	 "host;x-amz-date",
	 "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
	{"get-utf8",
	 "GET",
	 SUITE_URL "/\xe1\x88\xb4",
	 "",
	 {SUITE_HOST, SUITE_DATE},
	 "host;x-amz-date",
	 "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
	{"get-utf8, encoded",
	 "GET",
	 SUITE_URL "/%e1%88%B4",
	 "",
	 {SUITE_HOST, SUITE_DATE},
	 "host;x-amz-date",
	 "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
	{"get-space",
	 "GET",
	 SUITE_URL "/example space/",
	 "",
	 {SUITE_HOST, SUITE_DATE},
	 "host;x-amz-date",
	 "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
	{"get-header-key-duplicate",
	 "GET",
	 SUITE_URL "/",
	 "",
	 {SUITE_HOST, "My-Header1: value2", "My-Header1: value2", "My-Header1: value1", SUITE_DATE},
	 "host;my-header1;x-amz-date",
	 "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
	{"get-header-value-order",
	 "GET",
	 SUITE_URL "/",
	 "",
	 {SUITE_HOST, "My-Header1: value4", "My-Header1: value1", "My-Header1: value3",
	  "My-Header1: value2", SUITE_DATE},
	 "host;my-header1;x-amz-date",
	 "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"},
	{"get-header-value-trim",
	 "GET",
	 SUITE_URL "/",
	 "",
	 {SUITE_HOST, "My-Header1:  value1", "My-Header2:  \"a   b   c\" ", SUITE_DATE},
	 "host;my-header1;my-header2;x-amz-date",
	 "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
	{"post-vanilla",
	 "POST",
	 SUITE_URL "/",
	 "",
	 {SUITE_HOST, SUITE_DATE},
	 "host;x-amz-date",
	 "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
	{"post-vanilla-query",
	 "POST",
	 SUITE_URL "/?Param1=value1",
	 "",
	 {SUITE_HOST, SUITE_DATE},
	 "host;x-amz-date",
	 "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
	{"post-header-key-sort",
	 "POST",
	 SUITE_URL "/",
	 "",
	 {SUITE_DATE, "MY-HEADER1: value1", SUITE_HOST},
	 "host;my-header1;x-amz-date",
	 "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"},
	{"post-header-value-case",
	 "POST",
	 SUITE_URL "/",
	 "",
	 {SUITE_HOST, "My-Header1: VALUE1", SUITE_DATE},
	 "host;my-header1;x-amz-date",
	 "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"},
	{"post-x-www-form-urlencoded",
	 "POST",
	 SUITE_URL "/",
	 "Param1=value1",
	 {"Content-Type: application/x-www-form-urlencoded", SUITE_HOST, SUITE_DATE},
	 "content-type;host;x-amz-date",
	 "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
	{"post-x-www-form-urlencoded-parameters",
	 "POST",
	 SUITE_URL "/",
	 "Param1=value1",
	 {"Content-Type: application/x-www-form-urlencoded; charset=utf8", SUITE_HOST, SUITE_DATE},
	 "content-type;host;x-amz-date",
	 "1a72ec8f64bd914b0e42e42607c7fbce7fb2c7465f63e3092b3b0d39fa77a6fe"},
	{"post-sts-header-before",
	 "POST",
	 SUITE_URL "/",
	 "",
	 {SUITE_HOST, SUITE_DATE, "X-Amz-Security-Token: " SUITE_TOKEN},
	 "host;x-amz-date;x-amz-security-token",
	 "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
};

/* The headers as lines, as curl has them. */
static void take_lines(const char *const *lines, struct http_headers *headers)
{
	for (size_t i = 0; i < HEADERS && lines[i]; i++)
		headers->list = curl_slist_append(headers->list, lines[i]);
}

static void hash_text(const char *text, char ret_hex[HASH_HEX])
{
	struct hash hash;

	hash_of(text, strlen(text), &hash);
	hash_to_hex(&hash, ret_hex);
}

START_TEST(amazon_s_test_suite_is_signed_as_it_says)
{
	const struct suite_case *c = &suite[_i];
	struct http_headers cleanup_http_headers headers = {0};
	struct buf cleanup_buf got = {0}, want = {0};
	char hex[HASH_HEX];
	const struct sigv4 s = {.scheme = &sigv4_amazon,
				.key = "AKIDEXAMPLE",
				.secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
				.region = "us-east-1",
				.service = "service",
				.method = c->method,
				.payload_hash = hex};

	hash_text(c->payload, hex);
	take_lines(c->headers, &headers);
	unit_ok(sigv4_authorization(&s, SUITE_AT, c->url, &headers, &got));
	buf_printf(
		&want,
		"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
		"SignedHeaders=%s, Signature=%s",
		c->signed_headers, c->signature);
	ck_assert_msg(!strcmp(buf_str(&got), buf_str(&want)), "%s: %s", c->name, buf_str(&got));
}
END_TEST

/* ---- the examples of the S3 API Reference */

#define S3_AT	  1369353600 /* 2013-05-24T00:00:00Z */
#define S3_HOST	  "https://examplebucket.s3.amazonaws.com"
#define S3_SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define S3_ALWAYS "x-amz-content-sha256;x-amz-date"

static const struct suite_case examples[] = {
	{"GET Object",
	 "GET",
	 S3_HOST "/test.txt",
	 "",
	 {"Range: bytes=0-9"},
	 "host;range;" S3_ALWAYS,
	 "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
	{"PUT Object",
	 "PUT",
	 S3_HOST "/test$file.text",
	 "Welcome to Amazon S3.",
	 {"Date: Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class: REDUCED_REDUNDANCY"},
	 "date;host;" S3_ALWAYS ";x-amz-storage-class",
	 "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
	{"GET Bucket Lifecycle",
	 "GET",
	 S3_HOST ":443/?lifecycle",
	 "",
	 {0},
	 "host;" S3_ALWAYS,
	 "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
	{"Get Bucket (List Objects)",
	 "GET",
	 S3_HOST "/?max-keys=2&prefix=J",
	 "",
	 {0},
	 "host;" S3_ALWAYS,
	 "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
};

/* The value of the header that is sent, "" where there is none. */
static const char *sent(const struct http_headers *headers, const char *name)
{
	size_t len = strlen(name);

	for (const struct curl_slist *l = headers->list; l; l = l->next)
		if (!strncasecmp(l->data, name, len) && !strncmp(l->data + len, ": ", 2))
			return l->data + len + 2;
	return "";
}

START_TEST(amazon_s_examples_of_s3_are_signed_as_they_say)
{
	const struct suite_case *c = &examples[_i];
	struct http_headers cleanup_http_headers headers = {0};
	struct buf cleanup_buf want = {0};
	char hex[HASH_HEX];
	const struct sigv4 s = {.scheme = &sigv4_amazon,
				.key = "AKIAIOSFODNN7EXAMPLE",
				.secret = S3_SECRET,
				.region = "us-east-1",
				.service = "s3",
				.method = c->method,
				.payload_hash = hex};

	hash_text(c->payload, hex);
	take_lines(c->headers, &headers);
	unit_ok(sigv4_sign_at(&s, S3_AT, c->url, &headers));
	buf_printf(&want,
		   "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"
		   "aws4_request, SignedHeaders=%s, Signature=%s",
		   c->signed_headers, c->signature);
	ck_assert_str_eq(sent(&headers, "Authorization"), buf_str(&want));
	ck_assert_str_eq(sent(&headers, "Host"), "examplebucket.s3.amazonaws.com");
	ck_assert_str_eq(sent(&headers, "x-amz-date"), "20130524T000000Z");
	ck_assert_str_eq(sent(&headers, "x-amz-content-sha256"), hex);
	ck_assert_str_eq(sent(&headers, "x-amz-security-token"), "");
}
END_TEST

/* ---- what a server took */

#define RGW_URL	   "http://127.0.0.1:39861/epochfs-test/"
#define RGW_PREFIX "run%207/a%2Bb%20%28%C3%BC%29%3D%26%25~/"

/* Requests of epochfs to which Ceph's gateway (16.2) said 200. */
static const struct {
	int64_t at;
	struct suite_case c;
} taken[] = {
	{1795406478, /* 2026-11-23T04:01:18Z */
	 {"create",
	  "PUT",
	  RGW_URL RGW_PREFIX "epochfs.probe-85b1c7dfffb7a55d",
	  "8bbec092280d1b327e402b3c676ef8392dc5b19d1a66ba309e4ee525b8738647",
	  {"Content-Type: application/octet-stream", "If-None-Match: *"},
	  "content-type;host;if-none-match;" S3_ALWAYS,
	  "5314650321ac2e49621b6a4f37d8d1a1b068468646c0abde0e33756d8dae442f"}},
	{1795406495, /* 2026-11-23T04:01:35Z */
	 {"second page of a list",
	  "GET",
	  RGW_URL
	  "?continuation-token=run%207%2Fa%2Bb%20%28%C3%BC%29%3D%26%25~%2Ffiles%2F0999%20x%2By"
	  "&encoding-type=url&list-type=2&max-keys=1000"
	  "&prefix=run%207%2Fa%2Bb%20%28%C3%BC%29%3D%26%25~%2F",
	  EMPTY,
	  {0},
	  "host;" S3_ALWAYS,
	  "ed06b3851abe6bc71dd8a14f0f72c3960a578ecc48d352eb324dc6cdcc8c5258"}},
};

START_TEST(a_gateway_takes_what_is_signed)
{
	const struct suite_case *c = &taken[_i].c;
	struct http_headers cleanup_http_headers headers = {0};
	struct buf cleanup_buf want = {0};
	const struct sigv4 s = {.scheme = &sigv4_amazon,
				.key = "TESTKEY",
				.secret = "TESTSECRET",
				.region = "us-east-1",
				.service = "s3",
				.method = c->method,
				.payload_hash = c->payload};

	take_lines(c->headers, &headers);
	unit_ok(sigv4_sign_at(&s, taken[_i].at, c->url, &headers));
	buf_printf(&want,
		   "AWS4-HMAC-SHA256 Credential=TESTKEY/20261123/us-east-1/s3/aws4_request, "
		   "SignedHeaders=%s, Signature=%s",
		   c->signed_headers, c->signature);
	ck_assert_str_eq(sent(&headers, "Authorization"), buf_str(&want));
}
END_TEST

/* ---- the canonical request */

static const struct sigv4 plain = {.scheme = &sigv4_amazon,
				   .key = "K",
				   .secret = "S",
				   .region = "r",
				   .service = "s3",
				   .method = "GET",
				   .payload_hash = "UNSIGNED-PAYLOAD"};

/* The canonical request without headers. */
static void assert_canonical(const char *url, const char *path, const char *query)
{
	struct http_headers none = {0};
	struct buf cleanup_buf got = {0}, names = {0}, want = {0};

	unit_ok(sigv4_canonical_request(&plain, url, &none, &got, &names));
	buf_printf(&want, "GET\n%s\n%s\n\n\n\nUNSIGNED-PAYLOAD", path, query);
	ck_assert_str_eq(buf_str(&got), buf_str(&want));
	ck_assert_str_eq(buf_str(&names), "");
}

START_TEST(paths_and_queries_are_encoded_once_and_queries_are_sorted)
{
	static const struct {
		const char *url, *path, *query;
	} cases[] = {
		{"http://h", "/", ""},
		{"http://h?a", "/", "a="},
		{"http://h/#f?a=b", "/", ""},
		{"http://h/x?a=b#f", "/x", "a=b"},
		/* as S3 wants it: nothing is folded, nothing encoded twice */
		{"http://h//a/./b/../c//", "//a/./b/../c//", ""},
		{"http://h/a%20b%2fc+d", "/a%20b/c%2Bd", ""},
		{"http://h/100%", "/100%25", ""},
		{"http://h/%4", "/%254", ""},
		{"http://h/%zz", "/%25zz", ""},
		{"http://h/(a)!'*~", "/%28a%29%21%27%2A~", ""},
		/* `/` stays in no query; names are compared without what follows them */
		{"http://h/?prefix=a/b&list-type=2", "/", "list-type=2&prefix=a%2Fb"},
		{"http://h/?a-b=1&a=2&a%3D=3", "/", "a=2&a%3D=3&a-b=1"},
		{"http://h/?b&&a=&", "/", "a=&b="},
		{"http://h/?a=b=c", "/", "a=b%3Dc"},
		{"http://h/?continuation-token=1%2F%2B%3D&encoding-type=url&prefix=", "/",
		 "continuation-token=1%2F%2B%3D&encoding-type=url&prefix="},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_canonical(cases[i].url, cases[i].path, cases[i].query);
}
END_TEST

/* The host that is sent and signed. */
static void assert_host(const char *url, const char *host)
{
	struct http_headers cleanup_http_headers headers = {0};

	unit_ok(sigv4_sign_at(&plain, 0, url, &headers));
	ck_assert_str_eq(sent(&headers, "Host"), host);
}

START_TEST(a_port_that_goes_without_saying_is_not_said)
{
	assert_host("http://h:80/", "h");
	assert_host("https://h:443/", "h");
	assert_host("http://h:443/", "h:443");
	assert_host("https://h:80/", "h:80");
	assert_host("http://h:8080", "h:8080");
	assert_host("http://[::1]:7480/b/k", "[::1]:7480");
	assert_host("HTTP://H?x", "H");
}
END_TEST

START_TEST(a_header_that_is_not_sent_is_not_signed)
{
	struct http_headers cleanup_http_headers headers = {0};
	struct buf cleanup_buf got = {0}, names = {0};
	const char *const lines[HEADERS] = {"Expect: ", "B:  2 ", "A: 1"};

	take_lines(lines, &headers);
	unit_ok(sigv4_canonical_request(&plain, "http://h/", &headers, &got, &names));
	ck_assert_str_eq(buf_str(&got), "GET\n/\n\na:1\nb:2\n\na;b\nUNSIGNED-PAYLOAD");
}
END_TEST

START_TEST(google_s_has_names_of_its_own)
{
	struct http_headers cleanup_http_headers headers = {0};
	struct sigv4 s = plain;
	const char *authorization;

	s.scheme = &sigv4_google;
	s.service = "storage";
	s.region = "auto";
	s.token = "T";
	unit_ok(sigv4_sign_at(&s, S3_AT, "https://storage.googleapis.com/b/k", &headers));
	ck_assert_str_eq(sent(&headers, "x-goog-date"), "20130524T000000Z");
	ck_assert_str_eq(sent(&headers, "x-goog-content-sha256"), "UNSIGNED-PAYLOAD");
	ck_assert_str_eq(sent(&headers, "x-goog-security-token"), "T");
	authorization = sent(&headers, "Authorization");
	ck_assert_msg(strstr(authorization,
			     "GOOG4-HMAC-SHA256 Credential=K/20130524/auto/storage/goog4_request, "
			     "SignedHeaders=host;x-goog-content-sha256;x-goog-date;"
			     "x-goog-security-token, Signature=") == authorization,
		      "%s", authorization);
}
END_TEST

START_TEST(the_time_is_that_of_the_server)
{
	struct http_headers cleanup_http_headers now = {0}, then = {0};
	struct sigv4 s = plain;

	unit_ok(sigv4_sign(&s, "http://h/", &now));
	s.skew_ns = -(clock_wall_ns() / NS_PER_S - S3_AT) * NS_PER_S;
	unit_ok(sigv4_sign(&s, "http://h/", &then));
	ck_assert(!strncmp(sent(&then, "x-amz-date"), "20130524T0000", 13));
	ck_assert(strncmp(sent(&now, "x-amz-date"), "2013", 4) > 0);
}
END_TEST

/* ---- what cannot be signed */

START_TEST(what_is_no_url_or_too_much_is_refused)
{
	static const char *const urls[] = {"", "h/x", "http://", "http:///x", "http://?x"};
	struct http_headers cleanup_http_headers headers = {0};
	struct buf cleanup_buf url = {0};
	struct sigv4 s = plain;

	for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++)
		unit_error(sigv4_sign_at(&s, 0, urls[i], &headers), -EINVAL);
	buf_printf(&url, "http://h/?");
	for (unsigned i = 0; i < 32; i++)
		buf_printf(&url, "&p%u=\x01", i);
	unit_ok(sigv4_sign_at(&s, 0, buf_str(&url), &headers));
	buf_printf(&url, "&q=1");
	unit_error(sigv4_sign_at(&s, 0, buf_str(&url), &headers), -EINVAL);
	s.token = "a\r\nb";
	unit_error(sigv4_sign_at(&s, 0, "http://h/", &headers), -EINVAL);
	s.token = NULL;
	s.key = "a\nb";
	unit_error(sigv4_sign_at(&s, 0, "http://h/", &headers), -EINVAL);
}
END_TEST

START_TEST(a_token_of_any_length_is_signed)
{
	struct http_headers cleanup_http_headers headers = {0};
	struct sigv4 s = plain;
	cleanup_free char *token = malloc(70001);

	memset(token, 't', 70000);
	token[70000] = '\0';
	s.token = token;
	unit_ok(sigv4_sign_at(&s, 0, "http://h/", &headers));
	ck_assert_str_eq(sent(&headers, "x-amz-security-token"), token);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_sigv4");
	TCase *t = unit_case(s, "vectors");

	tcase_add_loop_test(t, amazon_s_test_suite_is_signed_as_it_says, 0,
			    sizeof(suite) / sizeof(suite[0]));
	tcase_add_loop_test(t, amazon_s_examples_of_s3_are_signed_as_they_say, 0,
			    sizeof(examples) / sizeof(examples[0]));
	tcase_add_loop_test(t, a_gateway_takes_what_is_signed, 0, sizeof(taken) / sizeof(taken[0]));
	t = unit_case(s, "canonical");
	tcase_add_test(t, paths_and_queries_are_encoded_once_and_queries_are_sorted);
	tcase_add_test(t, a_port_that_goes_without_saying_is_not_said);
	tcase_add_test(t, a_header_that_is_not_sent_is_not_signed);
	tcase_add_test(t, google_s_has_names_of_its_own);
	tcase_add_test(t, the_time_is_that_of_the_server);
	t = unit_case(s, "refused");
	tcase_add_test(t, what_is_no_url_or_too_much_is_refused);
	tcase_add_test(t, a_token_of_any_length_is_signed);
	return unit_run(s);
}

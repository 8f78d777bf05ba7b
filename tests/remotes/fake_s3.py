# SPDX-License-Identifier: Apache-2.0
"""An S3 server in the test's own process, for what no real one here does: to ignore the condition of a
create, to have another clock or region, host names for buckets, small pages, keys that change, and
Google's dialect.

It takes nothing on trust: signatures (Amazon's and Google's version 4) are computed again, paths and
queries must be in the canonical form, and the body must have the hash and MD5 that were signed.
"""

import base64
import datetime
import email.utils
import hashlib
import http.server
import os
import re
import ssl
import threading
import time
import urllib.parse
import xml.sax.saxutils as xml
from xml.etree import ElementTree

import s3_client


class Refused(Exception):
    def __init__(self, status, code, **more):
        super().__init__(code)
        self.status, self.code, self.more = status, code, more


class FakeS3:
    """`with FakeS3() as fake:`; attributes may be changed at any time."""

    def __init__(self, dialect="amz"):
        self.dialect = dialect  # or "goog"
        self.service = "s3" if dialect == "amz" else "storage"
        self.key, self.secret, self.token = "FAKEKEY", "FAKE+/SECRET", None
        self.bearer = None  # the token of Google's that is good
        self.region = "us-east-1" if dialect == "amz" else "auto"
        self.bucket = "fake-bucket"
        self.host_style = False  # the bucket stands in the host's name
        self.page = 1000
        self.clock_ahead = 0  # seconds
        self.condition = "kept"  # or "ignored", "unknown"
        self.batch = "quiet"  # what DeleteObjects is answered with; or "verbose", "unknown", "odd"
        self.undeletable = {}  # key: the code of the error that its DeleteObjects brings
        self.fault = lambda request: None  # may raise Refused
        self.redirect = None  # "https://HOST:PORT": a good GET or HEAD of an object that is there is answered with a 302 to that place
        self.objects = {}
        # As RGW (16.2, 18.2) does where versioning is on: no condition of a create counts, and each object's versions stay, the newest first: (id, body; None: deleted).
        self.versioned = False
        self.names_versions = False  # as R2 does: a PUT is answered with one, and none is kept
        self.lists_versions = True  # our user may
        self.locked = False  # no version may be deleted, but markers of deletions
        self.versions = {}
        self.requests = []  # (method, path and query, headers)
        self.lock = threading.Lock()

    def __enter__(self):
        fake = self

        class Handler(_Handler):
            server_state = fake

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def endpoint(self):
        return "http://localhost:%d" % self.server.server_port

    def url(self, prefix, **parameters):
        scheme = "s3" if self.dialect == "amz" else "gs"
        if self.host_style:
            parameters["path-style"] = "0"
        query = urllib.parse.urlencode({"endpoint": self.endpoint, **parameters})
        return "%s://%s/%s?%s" % (scheme, self.bucket, prefix, query)

    def now(self):
        return time.time() + self.clock_ahead

    def add_version(self, key, body):
        """The headers of the answer."""
        if not self.versioned:
            return {"x-amz-version-id": os.urandom(6).hex()} if self.names_versions and body is not None else {}
        version = "%s/+%d" % (os.urandom(6).hex(), len(self.versions.get(key, [])))
        self.versions.setdefault(key, []).insert(0, (version, body))
        return {"x-amz-version-id": version, **({"x-amz-delete-marker": "true"} if body is None else {})}

    def named_version(self, key):
        versions = self.versions.get(key)
        return {"x-amz-version-id": versions[0][0]} if versions else {}

    def put(self, key, body):
        with self.lock:
            self.objects[key] = body
            return self.add_version(key, body)

    def delete(self, key):
        with self.lock:
            self.objects.pop(key, None)
            return self.add_version(key, None)

    def delete_version(self, key, version):
        with self.lock:
            left = [v for v in self.versions.get(key, []) if v[0] != version]
            self.versions[key] = left
            self.objects.pop(key, None)
            if left and left[0][1] is not None:
                self.objects[key] = left[0][1]
            elif not left:
                del self.versions[key]


class Elsewhere:
    """The host that holds the bytes of a FakeS3, over https alone: what a gateway redirects reads to. `answer` (status, headers) is its answer in place of the object."""

    def __init__(self, fake, certificate, key):
        self.fake, self.pair, self.answer = fake, (certificate, key), None
        self.requests = []  # (method, path and query, headers)

    def __enter__(self):
        elsewhere = self

        class Handler(_Handler):
            server_state = self.fake

            def handle_any(self):
                elsewhere.requests.append((self.command, self.path, dict(self.headers.items())))
                status, body, headers = elsewhere.answer or self.object()
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def object(self):
                try:
                    return getattr(self, "do_object_" + self.command.lower())(urllib.parse.unquote(self.path[1:].split("?")[0]), b"")
                except Refused as refused:
                    return refused.status, b"none", {}

            do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = handle_any

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.pair)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def origin(self):
        return "https://localhost:%d" % self.server.server_port


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def date_time_string(self, timestamp=None):
        return email.utils.formatdate(self.server_state.now(), usegmt=True)

    # ---- what is asked

    def handle_any(self):
        fake = self.server_state
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with fake.lock:
            fake.requests.append((self.command, self.path, dict(self.headers.items())))
        try:
            fake.fault(self)
            self.check_signature()
            self.check_body(body)
            key = self.object_key()
            if key in fake.objects and fake.redirect and self.command in ("GET", "HEAD"):
                answer = 302, b"elsewhere", {"Location": "%s/%s?X-Amz-Signature=sIgNeD" % (fake.redirect, urllib.parse.quote(key))}
            elif key:
                answer = getattr(self, "do_object_" + self.command.lower())(key, body)
            elif self.command == "POST":
                answer = self.delete_objects(body)
            else:
                answer = self.list_objects()
        except Refused as refused:
            more = "".join("<%s>%s</%s>" % (k, v, k) for k, v in refused.more.items())
            answer = refused.status, "<?xml version='1.0'?><Error><Code>%s</Code><Message>m</Message>%s</Error>" % (
                refused.code, more), {}
        status, text, headers = answer
        data = text.encode() if isinstance(text, str) else text
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("Content-Length", headers.get("content-length") or str(len(data)))
        self.end_headers()
        if self.command != "HEAD" and status not in (204, 304):
            self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = handle_any

    def object_key(self):
        """The key, or "" for the bucket itself."""
        fake = self.server_state
        path = urllib.parse.unquote(self.path.split("?")[0])
        host = self.headers["Host"].split(":")[0]
        if fake.host_style:
            bucket, key = host.split(".")[0], path[1:]
        else:
            bucket, _, key = path[1:].partition("/")
        if bucket != fake.bucket:
            raise Refused(404, "NoSuchBucket")
        return key

    # ---- what is checked

    def check_signature(self):
        fake = self.server_state
        authorization = self.headers.get("Authorization", "")
        if fake.bearer and authorization == "Bearer " + fake.bearer:
            return
        algorithm = {"amz": "AWS4-HMAC-SHA256", "goog": "GOOG4-HMAC-SHA256"}[fake.dialect]
        found = re.fullmatch(r"%s Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/(\w+), ?SignedHeaders=([^,]+), ?"
                             r"Signature=([0-9a-f]{64})" % algorithm, authorization)
        if not found:
            raise Refused(401 if authorization.startswith("Bearer") else 403, "AccessDenied")
        key, date, region, service, request, names, signature = found.groups()
        stamp = self.headers["X-%s-Date" % fake.dialect]
        at = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc).timestamp()
        if key != fake.key:
            raise Refused(403, "InvalidAccessKeyId")
        if (self.headers.get("x-%s-security-token" % fake.dialect)) != fake.token:
            raise Refused(400, "ExpiredToken")
        if abs(at - fake.now()) > 900 or not stamp.startswith(date):
            raise Refused(403, "RequestTimeTooSkewed")
        if region != fake.region:
            raise Refused(400, "AuthorizationHeaderMalformed", Region=fake.region)
        if (service, request) != (fake.service, {"amz": "aws4_request", "goog": "goog4_request"}[fake.dialect]):
            raise Refused(400, "AuthorizationHeaderMalformed")
        signed = {name: self.headers[name] for name in names.split(";")}
        for needed in ("host", "x-%s-date" % fake.dialect, "x-%s-content-sha256" % fake.dialect):
            if needed not in signed:
                raise Refused(403, "AccessDenied")
        path, _, query = self.path.partition("?")
        pairs = [tuple(map(urllib.parse.unquote, pair.split("=", 1))) for pair in query.split("&")] if query else []
        # The signature covers the canonical form: what came must be that.
        canonical = "&".join("%s=%s" % (s3_client.quote(k), s3_client.quote(v)) for k, v in sorted(pairs))
        if path != s3_client.quote(urllib.parse.unquote(path), "/") or query != canonical:
            raise Refused(403, "SignatureDoesNotMatch")
        wanted = s3_client.authorization(self.command, path, pairs, signed,
                                         self.headers["x-%s-content-sha256" % fake.dialect], key, fake.secret, region,
                                         service, fake.dialect)
        if not wanted.endswith(signature):
            raise Refused(403, "SignatureDoesNotMatch")

    def check_body(self, body):
        fake = self.server_state
        signed_hash = self.headers.get("x-%s-content-sha256" % fake.dialect)
        md5 = self.headers.get("Content-MD5")
        # Of the two, Google says only that it compares the MD5.
        if fake.dialect == "amz" and signed_hash != hashlib.sha256(body).hexdigest():
            raise Refused(400, "XAmzContentSHA256Mismatch")
        if fake.dialect == "goog" and self.command == "PUT" and md5 is None:
            raise Refused(400, "InvalidDigest")
        if md5 is not None and base64.b64decode(md5) != hashlib.md5(body).digest():
            raise Refused(400, "BadDigest")

    # ---- objects

    def do_object_put(self, key, body):
        fake = self.server_state
        conditional = not fake.versioned and (
            self.headers.get("If-None-Match") == "*" if fake.dialect == "amz"
            else self.headers.get("x-goog-if-generation-match") == "0")
        if conditional and fake.condition == "unknown":
            raise Refused(501, "NotImplemented")
        with fake.lock:
            if conditional and fake.condition == "kept" and key in fake.objects:
                raise Refused(412, "PreconditionFailed")
            fake.objects[key] = body
            version = fake.add_version(key, body)
        return 200, b"", {"ETag": '"%s"' % hashlib.md5(body).hexdigest(), **version}

    def do_object_get(self, key, _):
        body = self.server_state.objects.get(key)
        if body is None:
            raise Refused(404, "NoSuchKey")
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not asked:
            return 200, body, self.server_state.named_version(key)
        first, last = int(asked[1]), min(int(asked[2] or len(body)), len(body) - 1)
        if first >= len(body):
            raise Refused(416, "InvalidRange")
        return 206, body[first:last + 1], {"Content-Range": "bytes %d-%d/%d" % (first, last, len(body))}

    def do_object_head(self, key, _):
        body = self.server_state.objects.get(key)
        if body is None:
            return 404, b"", {}
        return 200, b"", {"content-length": str(len(body)), **self.server_state.named_version(key)}

    def do_object_delete(self, key, _):
        fake = self.server_state
        version = urllib.parse.parse_qs(self.path.partition("?")[2]).get("versionId")
        if version and fake.locked and (version[0], None) not in fake.versions.get(key, []):
            raise Refused(403, "AccessDenied")
        if version:
            fake.delete_version(key, version[0])
            return 204, b"", {"x-amz-version-id": version[0]}
        return 204, b"", fake.delete(key)

    def delete_objects(self, body):
        fake = self.server_state
        if fake.batch == "unknown" or fake.dialect == "goog" or self.path.partition("?")[2] != "delete=":
            raise Refused(405, "MethodNotAllowed")
        if not self.headers.get("Content-MD5"):
            raise Refused(400, "InvalidRequest")
        space = "{http://s3.amazonaws.com/doc/2006-03-01/}"
        try:
            root = ElementTree.fromstring(body)
        except ElementTree.ParseError:
            raise Refused(400, "MalformedXML") from None
        keys = [key.text for key in root.iterfind("%sObject/%sKey" % (space, space))]
        if root.tag != space + "Delete" or not 0 < len(set(keys)) == len(keys) <= 1000:
            raise Refused(400, "MalformedXML")
        if fake.batch == "odd":
            return 200, b"done", {}
        text = "<?xml version='1.0'?><DeleteResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
        for key in keys:
            code = fake.undeletable.get(key)
            if code:
                text += "<Error><Key>%s</Key><Code>%s</Code><Message>m</Message></Error>" % (xml.escape(key), code)
                continue
            fake.delete(key)
            if fake.batch == "verbose" or root.findtext(space + "Quiet") != "true":
                text += "<Deleted><Key>%s</Key></Deleted>" % xml.escape(key)
        return 200, text + "</DeleteResult>", {}

    def list_objects(self):
        fake = self.server_state
        query = dict(urllib.parse.parse_qsl(self.path.partition("?")[2], keep_blank_values=True))
        if self.command == "GET" and "versions" in query:
            return self.list_versions(query)
        if self.command != "GET" or query.get("list-type") != "2":
            raise Refused(405, "MethodNotAllowed")
        after = query.get("continuation-token", "")
        if after and not after.startswith("go on+after/"):
            raise Refused(400, "InvalidArgument")
        after = after[len("go on+after/"):]
        keys = sorted(k for k in list(fake.objects) if k.startswith(query["prefix"]) and k > after)
        page = keys[:min(fake.page, int(query["max-keys"]))]
        text = "<?xml version='1.0'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
        text += "<EncodingType>url</EncodingType><IsTruncated>%s</IsTruncated>" % str(len(page) < len(keys)).lower()
        if len(page) < len(keys):
            text += "<NextContinuationToken>go on+after/%s</NextContinuationToken>" % xml.escape(page[-1])
        for key in page:
            text += "<Contents><Key>%s</Key><Size>%d</Size></Contents>" % (
                urllib.parse.quote_plus(key), len(fake.objects.get(key, b"")))
        return 200, text + "</ListBucketResult>", {}

    def list_versions(self, query):
        fake = self.server_state
        if not fake.lists_versions:
            raise Refused(403, "AccessDenied")
        text = "<?xml version='1.0'?><ListVersionsResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
        with fake.lock:
            found = [(key, *version) for key in sorted(fake.versions) for version in fake.versions[key] if key.startswith(query["prefix"])]
        for key, version, body in found[:int(query["max-keys"])]:
            kind = "DeleteMarker" if body is None else "Version"
            text += "<%s><Key>%s</Key><VersionId>%s</VersionId></%s>" % (kind, xml.escape(key), xml.escape(version), kind)
        return 200, text + "</ListVersionsResult>", {}

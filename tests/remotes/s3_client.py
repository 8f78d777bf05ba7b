# SPDX-License-Identifier: Apache-2.0
"""A small S3 client for the tests, with a signature (version 4) of its own: what epochfs makes is
compared with it, not with itself.

The algorithm is Amazon's, from its documentation "Signature Version 4 signing process"."""

import datetime
import hashlib
import hmac
import http.client
import ssl
import urllib.parse


class S3Error(Exception):
    def __init__(self, status, body):
        super().__init__("%d: %s" % (status, body[:500]))
        self.status = status


def quote(text, safe=""):
    """A path's or query's text in canonical form."""
    return urllib.parse.quote(text, safe=safe + "-_.~")


def signature(secret, date, region, service, text, dialect="amz"):
    """The hex signature of a string to sign."""
    key = {"amz": b"AWS4", "goog": b"GOOG4"}[dialect] + secret.encode()
    for part in (date, region, service, {"amz": "aws4_request", "goog": "goog4_request"}[dialect]):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def authorization(method, path, query, headers, payload_hash, key, secret, region, service="s3", dialect="amz"):
    """The Authorization header. `path` is canonical, `query` a list of pairs, `headers` all that are
    signed, with lower-case names, x-amz-date among them. dialect "goog": Google's, which differs in
    names alone."""
    stamp = headers["x-%s-date" % dialect]
    algorithm, request = {"amz": ("AWS4", "aws4_request"), "goog": ("GOOG4", "goog4_request")}[dialect]
    scope = "%s/%s/%s/%s" % (stamp[:8], region, service, request)
    names = ";".join(sorted(headers))
    canonical = "\n".join([
        method, path, "&".join("%s=%s" % (quote(k), quote(v)) for k, v in sorted(query)),
        "".join("%s:%s\n" % (k, headers[k].strip()) for k in sorted(headers)), names, payload_hash])
    text = "\n".join([algorithm + "-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    return "%s-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s" % (
        algorithm, key, scope, names, signature(secret, stamp[:8], region, service, text, dialect))


class Client:
    """Requests to one endpoint, one connection each."""

    def __init__(self, endpoint, key, secret, region="us-east-1", token=None, ca=None):
        self.endpoint = urllib.parse.urlsplit(endpoint)
        self.key, self.secret, self.region, self.token, self.ca = key, secret, region, token, ca

    def request(self, method, path, query=(), body=b"", headers=None, service="s3"):
        """(status, body, headers) of a signed request."""
        payload_hash = hashlib.sha256(body).hexdigest()
        signed = {"host": self.endpoint.netloc, "x-amz-content-sha256": payload_hash,
                  "x-amz-date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ"),
                  **{k.lower(): v for k, v in (headers or {}).items()}}
        if self.token:
            signed["x-amz-security-token"] = self.token
        path = quote(path, "/")
        auth = authorization(method, path, query, signed, payload_hash, self.key, self.secret, self.region, service)
        if self.endpoint.scheme == "https":
            connection = http.client.HTTPSConnection(self.endpoint.netloc, timeout=60,
                                                     context=ssl.create_default_context(cafile=self.ca))
        else:
            connection = http.client.HTTPConnection(self.endpoint.netloc, timeout=60)
        try:
            target = path + ("?" + "&".join("%s=%s" % (quote(k), quote(v)) for k, v in sorted(query)) if query else "")
            connection.request(method, target, body=body, headers={**signed, "Authorization": auth})
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()

    def ask(self, *arguments, **keywords):
        """The body of a request that must succeed."""
        status, body, _ = self.request(*arguments, **keywords)
        if status >= 300:
            raise S3Error(status, body)
        return body

    def make_bucket(self, bucket):
        self.ask("PUT", "/" + bucket)

    def put(self, bucket, key, body):
        self.ask("PUT", "/%s/%s" % (bucket, key), body=body)

    def get(self, bucket, key):
        return self.ask("GET", "/%s/%s" % (bucket, key))

    def delete(self, bucket, key):
        self.ask("DELETE", "/%s/%s" % (bucket, key))

    def keys(self, bucket, prefix=""):
        """The first 1000 keys below the prefix."""
        import xml.etree.ElementTree as tree
        found = tree.fromstring(self.ask("GET", "/" + bucket, [("list-type", "2"), ("prefix", prefix)]))
        return [e.text for e in found.iter() if e.tag.endswith("}Key")]

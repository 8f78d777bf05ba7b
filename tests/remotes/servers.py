# SPDX-License-Identifier: Apache-2.0
"""The servers that the tests of remotes run on, and their fixture.

    from servers import server          # a test that takes `server` runs over all of them
    @pytest.mark.parametrize("server", ["lighttpd"], indirect=True)    # or over some
"""

import pytest

from server import ServerMissing

SERVERS = {}


@pytest.fixture(scope="module", params=sorted(SERVERS))
def server(request, tmp_path_factory):
    """A running server of this kind; its data is gone after the module."""
    kind = SERVERS[request.param]
    try:
        with kind(tmp_path_factory.mktemp(kind.name)) as running:
            yield running
    except ServerMissing as error:
        if not kind.optional:
            raise
        pytest.skip(str(error))

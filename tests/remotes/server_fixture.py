# SPDX-License-Identifier: Apache-2.0
"""The fixture `server`: a test that takes it runs over all servers of servers.py, or over some with
@pytest.mark.parametrize("server", ["lighttpd"], indirect=True).

It is a plugin that ../conftest.py loads, and no conftest.py: two of that name would be one module to
`from conftest import`.
"""

import pytest

from server import ServerMissing
from servers import SERVERS


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

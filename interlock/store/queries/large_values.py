"""Load large values of a unit from its blobs."""

import msgspec

from interlock.blobs.store import read_value
from interlock.kernel.errors import InterlockError
from interlock.store.connection import Connection
from interlock.store.queries.views import View


def read_large_values(connection: Connection, item: View) -> View:
    """Returns a unit with its input and its result, also those that are kept as blobs.

    One that cannot be read here stays the reference that it is: the rest of the unit can still be shown.
    """
    body = item.body
    try:
        given = read_value(connection.blobs, body.tenant, body.input)
        result = None if body.result is None else read_value(connection.blobs, body.tenant, body.result)
    except InterlockError:
        return item
    if given is body.input and result is body.result:
        return item
    return msgspec.structs.replace(item, body=msgspec.structs.replace(body, input=given, result=result))

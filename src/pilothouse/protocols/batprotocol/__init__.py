"""batprotocol (Batsim 5): its messages in FlatBuffers and JSON, and both ends of the conversation.

`messages`, `binary` and `text` are generated from `schema.fbs` when the package is built; `codec` is the door to them.
"""

from importlib.util import find_spec

if find_spec(f"{__name__}.messages") is None:
    raise ImportError(f"{__path__[0]}/messages.py is generated and not there: run `./do setup` or `pip install -e .`")

"""batprotocol (Batsim 5): its messages in FlatBuffers and JSON, and both ends of the conversation.

`messages`, `binary` and `text` are generated from `schema.fbs`; `codec` is the door to them.
"""

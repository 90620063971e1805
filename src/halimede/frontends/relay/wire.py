"""What a front end and the engine tell each other: items, many in a message (`link.Link`).

An item is a tuple whose first entry says what it is; the second is mostly the number of the call that it is about,
which the front end has given it. Large bytes are payloads: see `Link.payload`.
"""

from typing import Final

# To the engine
EXCHANGE: Final = 0
"""number, service, method, target, headers as sent, payload of the body, peer, client, when the body began"""
CALL: Final = 1
"""number, path, metadata, payload of the message, peer, client: a unary call over gRPC"""
STREAM_CALL: Final = 2
"""number, path, metadata, peer, client: a call over gRPC with a stream of messages"""
MESSAGE: Final = 3
"""number, payload: a message of a stream"""
HALF_CLOSE: Final = 4
"""number: the client has sent all of its stream"""
GONE: Final = 5
"""number, gRPC status: the client has gone, or its deadline has passed; nobody waits for the rest of the answer"""
TAKEN: Final = 6
"""number, bytes: the client's connection has taken so many more of an answer that comes in pieces"""
CONNECTIONS: Final = 7
"""protocol, how many are open, how many had been handed over then, how many were refused"""
COUNTED: Final = 8
"""protocol, route, status: a request that the front end has answered itself"""
LOGGED: Final = 9
"""values of an entry of the log of requests, about a request that the front end has answered itself"""
INFER: Final = 10
"""number, protocol, route, handle of the model, id, inputs, outputs wanted, parameters as JSON, place in queues and
sequences, when it was received: a request for inference that was read"""
READY: Final = 11
"""it takes connections"""
CLOSED: Final = 12
"""whether each connection has got its answers: it has none any more"""
FORM: Final = 13
"""number, protocol, route, handle of the model, name, datatype and shape of each input, outputs wanted, parameters as
JSON, place in queues and sequences: what requests have in common that come from now on"""
FORGET: Final = 14
"""numbers of forms of which no requests come any more"""
ASK: Final = 15
"""number, number of the form, id, when it was received, payload of each input: a request for inference of that form"""

# From the engine
REPLY: Final = 0
"""number, route, status, payloads, media type, further headers: the whole answer to an exchange"""
STREAM: Final = 1
"""number, route, status, media type: an answer whose body comes in pieces"""
PIECE: Final = 2
"""number, payload"""
END: Final = 3
"""number: the stream is over"""
ABORT: Final = 4
"""number: the stream is broken off"""
RESPONSE: Final = 5
"""number, payloads: the only message of a call over gRPC, which ends well"""
SEND: Final = 6
"""number, payloads: one message of a call over gRPC"""
FINISH: Final = 7
"""number, status, text: the end of a call over gRPC"""
PAUSE: Final = 8
"""number: send no more messages of the stream"""
RESUME: Final = 9
"""number: send them again"""
RESULT: Final = 10
"""number, outputs, parameters as JSON, error: what came of a request for inference"""
NOT_HERE: Final = 11
"""number: ask for the answer to the whole request"""
MODELS: Final = 12
"""names and versions of models that are gone, rows of models that have come or changed"""
LOG: Final = 13
"""settings of the log: info, warning, error, verbose, format"""
LEAVE: Final = 14
"""ask clients to go elsewhere"""
GOODBYE: Final = 15
"""no connections come any more; tell clients so, where their protocol has words for it"""
CLOSE: Final = 16
"""how many seconds: close each connection once it has got its answers"""
LAYOUT: Final = 17
"""number; name, datatype, shape and bytes of each output: what responses have in common that come from now on"""
ANSWER: Final = 18
"""number, number of the layout, payload of each output: what came of a request that was asked by its form"""
RELAYOUT: Final = 19
"""forget all layouts"""
TIMES: Final = 20
"""number, rows of the batch, when the request was queued and when its execution began, what it took to gather inputs,
to compute and to hand out outputs, -1 for what is not known: what a log of requests tells besides; before the result"""
TRACED: Final = 21
"""whether requests may be traced"""

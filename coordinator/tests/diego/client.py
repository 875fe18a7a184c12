"""Speaks to a coordinator as Diego's clients do, with Google's protobuf. Prints what it saw as JSON."""

import base64
import http.client
import json
import ssl
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

port, descriptor, ca, cert, key = sys.argv[1:]
pool = descriptor_pool.DescriptorPool()
with open(descriptor, "rb") as file:
    pool.Add(descriptor_pb2.FileDescriptorProto.FromString(file.read()))


def message(name):
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("models." + name))


def connect():
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(cert, key)
    return http.client.HTTPSConnection("127.0.0.1", int(port), timeout=30, context=context)


def call(connection, path, request, reply):
    body = request.SerializeToString() if request is not None else b""
    headers = {"Content-Type": "application/x-protobuf", "X-Vcap-Request-Id": "from-python"}
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    assert answer.getheader("content-type") == "application/x-protobuf"
    return message(reply).FromString(answer.read())


def lrp(guid, instances):
    desired = message("DesiredLRP")(
        process_guid=guid, domain="py", root_fs="preloaded:fs4", instances=instances
    )
    desired.action.run_action.path = "/bin/true"
    desired.action.run_action.user = "vcap"
    desired.routes.routes["cf-router"] = b'[{"port": 8080}]'
    desired.metric_tags["source_id"].static = "app"
    return message("DesireLRPRequest")(desired_lrp=desired)


stream = connect()
stream.request("POST", "/v1/events/lrp_instances.r1", message("EventsByCellId")().SerializeToString())
events = stream.getresponse()
assert events.status == 200

calls = connect()
assert call(calls, "/v1/ping", None, "PingResponse").available
for guid, instances in [("py-0", 2), ("py-1", 3)]:
    done = call(calls, "/v1/desired_lrp/desire.r2", lrp(guid, instances), "DesiredLRPLifecycleResponse")
    assert not done.HasField("error"), done
again = call(calls, "/v1/desired_lrp/desire.r2", lrp("py-0", 1), "DesiredLRPLifecycleResponse")
kinds = pool.FindEnumTypeByName("models.Error_Type").values_by_number
listed = call(calls, "/v1/desired_lrps/list.r3", message("DesiredLRPsRequest")(domain="py"), "DesiredLRPsResponse")
actual = call(calls, "/v1/actual_lrps/list", message("ActualLRPsRequest")(domain="py"), "ActualLRPsResponse")

KINDS = {
    "desired_lrp_created": ("DesiredLRPCreatedEvent", lambda it: it.desired_lrp.process_guid),
    "actual_lrp_instance_created": (
        "ActualLRPInstanceCreatedEvent",
        lambda it: it.actual_lrp.actual_lrp_key.process_guid,
    ),
}
seen, fields = [], {}
while len(seen) < 5:
    line = events.readline().decode().rstrip("\n")
    if line:
        name, value = line.split(": ", 1)
        fields[name] = value
        continue
    if fields.get("event") in KINDS:
        kind, guid = KINDS[fields["event"]]
        told = message(kind).FromString(base64.b64decode(fields["data"], validate=True))
        seen.append(f"{fields['id']} {fields['event']} {guid(told)} {told.trace_id}")
    fields = {}

first = sorted(listed.desired_lrps, key=lambda it: it.process_guid)
print(json.dumps({
    "desired": [it.process_guid for it in first],
    "route": first[0].routes.routes["cf-router"].decode(),
    "tag": first[0].metrics_guid,
    "actual": len(actual.actual_lrps),
    "error": kinds[again.error.type].name,
    "events": seen,
}))

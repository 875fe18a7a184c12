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


def run(action):
    action.run_action.path = "/bin/true"
    action.run_action.user = "vcap"


def lrp(guid, instances):
    desired = message("DesiredLRP")(
        process_guid=guid, domain="py", root_fs="preloaded:fs4", instances=instances, log_guid="log"
    )
    run(desired.action)
    desired.routes.routes["cf-router"] = b'[{"port": 8080}]'
    desired.metric_tags["source_id"].static = "app"
    return message("DesireLRPRequest")(desired_lrp=desired)


def task(guid):
    request = message("DesireTaskRequest")(task_guid=guid, domain="py")
    request.task_definition.root_fs = "preloaded:fs4"
    request.task_definition.log_rate_limit.bytes_per_second = -1
    run(request.task_definition.action)
    return request


def subscribe(path):
    stream = connect()
    stream.request("POST", path, message("EventsByCellId")().SerializeToString())
    events = stream.getresponse()
    assert events.status == 200
    # The connection goes with it, else it would be closed.
    return stream, events


def events(stream):
    """The events of a stream: id, name and message."""
    fields = {}
    while True:
        line = stream[1].readline().decode().rstrip("\n")
        if line:
            name, value = line.split(": ", 1)
            fields[name] = value
            continue
        if fields:
            yield fields["id"], fields["event"], base64.b64decode(fields["data"], validate=True)
        fields = {}


instance_stream = subscribe("/v1/events/lrp_instances.r1")
group_stream = subscribe("/v1/events.r1")
task_stream = subscribe("/v1/events/tasks.r1")

calls = connect()
assert call(calls, "/v1/ping", None, "PingResponse").available
for guid, instances in [("py-0", 2), ("py-1", 3)]:
    done = call(calls, "/v1/desired_lrp/desire.r2", lrp(guid, instances), "DesiredLRPLifecycleResponse")
    assert not done.HasField("error"), done
again = call(calls, "/v1/desired_lrp/desire.r2", lrp("py-0", 1), "DesiredLRPLifecycleResponse")
kinds = pool.FindEnumTypeByName("models.Error_Type").values_by_number
all_of = message("DesiredLRPsRequest")(domain="py")
listed = call(calls, "/v1/desired_lrps/list.r3", all_of, "DesiredLRPsResponse")
infos = call(
    calls, "/v1/desired_lrp_scheduling_infos/list", all_of, "DesiredLRPSchedulingInfosResponse"
)
actual = call(calls, "/v1/actual_lrps/list", message("ActualLRPsRequest")(domain="py"), "ActualLRPsResponse")
groups = call(
    calls, "/v1/actual_lrp_groups/list", message("ActualLRPGroupsRequest")(domain="py"), "ActualLRPGroupsResponse"
)
cells = call(calls, "/v1/cells/list.r1", None, "CellsResponse")
done = call(calls, "/v1/tasks/desire.r2", task("py-task"), "TaskLifecycleResponse")
assert not done.HasField("error"), done
tasks = call(calls, "/v1/tasks/list.r3", message("TasksRequest")(domain="py"), "TasksResponse")
guid = message("TaskGuidRequest")(task_guid="py-task")
one = call(
    calls, "/v1/tasks/get_by_task_guid.r3", message("TaskByGuidRequest")(task_guid="py-task"), "TaskResponse"
)
call(calls, "/v1/tasks/cancel", guid, "TaskLifecycleResponse")

INSTANCES = {
    "desired_lrp_created": ("DesiredLRPCreatedEvent", lambda it: it.desired_lrp.process_guid),
    "actual_lrp_instance_created": (
        "ActualLRPInstanceCreatedEvent",
        lambda it: it.actual_lrp.actual_lrp_key.process_guid,
    ),
}
seen_instances = []
for number, name, data in events(instance_stream):
    if name in INSTANCES:
        kind, guid_of = INSTANCES[name]
        told = message(kind).FromString(data)
        seen_instances.append(f"{number} {name} {guid_of(told)} {told.trace_id}")
    if len(seen_instances) == 5:
        break

GROUPS = {
    "desired_lrp_created": INSTANCES["desired_lrp_created"],
    "actual_lrp_created": (
        "ActualLRPCreatedEvent",
        lambda it: it.actual_lrp_group.instance.actual_lrp_key.process_guid,
    ),
}
seen_groups = []
for number, name, data in events(group_stream):
    if name in GROUPS:
        kind, guid_of = GROUPS[name]
        seen_groups.append(f"{number} {name} {guid_of(message(kind).FromString(data))}")
    if len(seen_groups) == 5:
        break

states = pool.FindEnumTypeByName("models.Task_State").values_by_number
seen_tasks = []
for number, name, data in events(task_stream):
    if name == "task_created":
        told = message("TaskCreatedEvent").FromString(data)
        seen_tasks.append(f"{number} {name} {told.task.task_guid}")
    if name == "task_changed":
        told = message("TaskChangedEvent").FromString(data)
        seen_tasks.append(states[told.after.state].name)
        if told.after.failed:
            break

first = sorted(listed.desired_lrps, key=lambda it: it.process_guid)
counts = {}
for group in groups.actual_lrp_groups:
    guid = group.instance.actual_lrp_key.process_guid
    counts[guid] = counts.get(guid, 0) + 1
print(json.dumps({
    "desired": [it.process_guid for it in first],
    "route": first[0].routes.routes["cf-router"].decode(),
    "tag": first[0].metrics_guid,
    "actual": len(actual.actual_lrps),
    "listed_groups": sorted(counts.items()),
    "infos": sorted(
        [
            it.desired_lrp_key.process_guid,
            it.instances,
            it.desired_lrp_resource.root_fs,
            it.desired_lrp_key.log_guid,
        ]
        for it in infos.desired_lrp_scheduling_infos
    ),
    "cells": len(cells.cells),
    "tasks": [
        [
            it.task_guid,
            it.task_definition.action.run_action.path,
            it.task_definition.log_rate_limit.bytes_per_second,
        ]
        for it in tasks.tasks
    ],
    "one_task": one.task.task_guid,
    "error": kinds[again.error.type].name,
    "instances": seen_instances,
    "groups": seen_groups,
    "task_events": seen_tasks,
}))

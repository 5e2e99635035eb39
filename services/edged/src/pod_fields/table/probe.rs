//! Probes and hooks.

use super::super::field::{Type, field, typed};

pub(super) static PROBE: Type = Type {
    name: "Probe",
    fields: &[
        typed("exec", &EXEC_ACTION),
        field("failureThreshold"),
        typed("grpc", &GRPC_ACTION),
        typed("httpGet", &HTTP_GET_ACTION),
        field("initialDelaySeconds"),
        field("periodSeconds"),
        field("successThreshold"),
        typed("tcpSocket", &TCP_SOCKET_ACTION),
        field("terminationGracePeriodSeconds"),
        field("timeoutSeconds"),
    ],
};

pub(super) static LIFECYCLE: Type = Type {
    name: "Lifecycle",
    fields: &[
        typed("postStart", &LIFECYCLE_HANDLER),
        typed("preStop", &LIFECYCLE_HANDLER),
        field("stopSignal").remark("`cri` refuses it where the runtime sends the image's signal"),
    ],
};

static LIFECYCLE_HANDLER: Type = Type {
    name: "LifecycleHandler",
    fields: &[
        typed("exec", &EXEC_ACTION),
        typed("httpGet", &HTTP_GET_ACTION),
        typed("sleep", &SLEEP_ACTION),
        typed("tcpSocket", &TCP_SOCKET_ACTION),
    ],
};

static EXEC_ACTION: Type = Type { name: "ExecAction", fields: &[field("command")] };

static GRPC_ACTION: Type = Type { name: "GRPCAction", fields: &[field("port"), field("service")] };

static HTTP_GET_ACTION: Type = Type {
    name: "HTTPGetAction",
    fields: &[
        field("host"),
        typed("httpHeaders", &HTTP_HEADER),
        field("path"),
        field("port"),
        field("scheme"),
    ],
};

static HTTP_HEADER: Type = Type { name: "HTTPHeader", fields: &[field("name"), field("value")] };

static SLEEP_ACTION: Type = Type { name: "SleepAction", fields: &[field("seconds")] };

static TCP_SOCKET_ACTION: Type =
    Type { name: "TCPSocketAction", fields: &[field("host"), field("port")] };

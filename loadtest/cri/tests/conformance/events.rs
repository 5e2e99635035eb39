//! The event streams: containerd's, and CRI's own.

use headwater_cri::proto::containerd::{Envelope, SubscribeRequest, TaskExit, TaskOom};
use headwater_cri::proto::*;
use headwater_cri_lab::Life;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Code, Request};

use crate::bench::{Case, DEADLINE, assert_fails};
use crate::containers::takes_memory;

/// Events that a case has not read.
const EVENTS_MAX: usize = 64;

/// Subscribes. The call answers with its first event only, so a task makes it; when this returns
/// the runtime has the subscription.
async fn subscribe(case: &Case) -> mpsc::Receiver<Envelope> {
    let filter = "namespace==k8s.io,topic~=\"/tasks/\"".to_owned();
    let mut request = Request::new(SubscribeRequest { filters: vec![filter] });
    let namespace = "k8s.io".parse().expect("a value");
    request.metadata_mut().insert("containerd-namespace", namespace);
    let (events, received) = mpsc::channel(EVENTS_MAX);
    let mut client = case.events.clone();
    tokio::spawn(async move {
        let mut stream = client.subscribe(request).await.expect("a stream").into_inner();
        while let Ok(Some(event)) = stream.message().await {
            if events.send(event).await.is_err() {
                return;
            }
        }
    });
    received
}

/// The next event of a container that is an exit or a kill for memory.
async fn next(events: &mut mpsc::Receiver<Envelope>, container: &str) -> Envelope {
    loop {
        let event = timeout(DEADLINE, events.recv()).await.expect("an event in time");
        let event = event.expect("the stream goes on");
        let value = event.event.as_ref().expect("a value").value.as_slice();
        let id = match event.topic.as_str() {
            "/tasks/exit" => {
                let exit = TaskExit::decode(value).expect("an exit");
                // A command in a container ends too, under an id of its own.
                if exit.id != exit.container_id {
                    continue;
                }
                exit.container_id
            }
            "/tasks/oom" => TaskOom::decode(value).expect("a kill").container_id,
            _ => continue,
        };
        if id == container {
            return event;
        }
    }
}

fn exit(event: &Envelope) -> TaskExit {
    assert_eq!(event.topic, "/tasks/exit");
    let value = &event.event.as_ref().expect("a value").value;
    TaskExit::decode(value.as_slice()).expect("an exit")
}

pub(crate) async fn an_end_comes_as_an_event(case: &Case) {
    let mut events = subscribe(case).await;
    let (sandbox, container) = case.running(Life::Exit { code: 3, tenths: 5 }).await;
    let exit = exit(&next(&mut events, &container).await);
    assert_eq!((exit.id, exit.exit_status), (container.clone(), 3));
    assert!(exit.exited_at.is_some());
    // CRI knows a moment later.
    assert_eq!(case.ended(&container).await.exit_code, 3);
    case.clean(&sandbox).await;
}

pub(crate) async fn a_kill_for_memory_comes_before_the_end(case: &Case) {
    let mut events = subscribe(case).await;
    let (sandbox, container) = takes_memory(case).await;
    assert_eq!(next(&mut events, &container).await.topic, "/tasks/oom");
    // Some kernels notify more than once.
    let mut event = next(&mut events, &container).await;
    while event.topic == "/tasks/oom" {
        event = next(&mut events, &container).await;
    }
    assert_eq!(exit(&event).exit_status, 137);
    case.clean(&sandbox).await;
}

pub(crate) async fn cris_own_events_are_those_of_containerd_2(case: &Case) {
    let mut runtime = case.runtime();
    let subscribing = runtime.get_container_events(GetEventsRequest {});
    if !case.is_two() {
        let answer = subscribing.await;
        return assert_fails(answer.map(drop), Code::Unimplemented, "GetContainerEvents");
    }
    // The answer comes with the first event, and the first ones may come before the subscription.
    let living = async {
        let sandbox = case.run_pod().await.expect("a sandbox");
        case.clean(&sandbox).await;
        sandbox
    };
    let (events, sandbox) = tokio::join!(subscribing, living);
    let mut events = events.expect("events").into_inner();
    // Those of earlier pods come first.
    let found = async {
        while let Some(event) = events.message().await.expect("events") {
            if event.container_id == sandbox {
                return;
            }
        }
        panic!("the events ended");
    };
    timeout(DEADLINE, found).await.expect("in time");
}

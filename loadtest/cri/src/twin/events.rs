//! containerd's events on the wire.

use std::time::SystemTime;

use headwater_cri::proto::containerd::events_server::Events;
use headwater_cri::proto::containerd::{Envelope, SubscribeRequest, TaskExit, TaskOom};
use prost::Message;
use tonic::{Request, Response, Status};

use super::Services;
use super::feed::{Feed, Happening, Reply};

/// The namespace of CRI in containerd.
const NAMESPACE: &str = "k8s.io";

#[tonic::async_trait]
impl Events for Services {
    type SubscribeStream = Reply<Envelope>;

    async fn subscribe(
        &self,
        _request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let feed = Feed::new(&self.0);
        Ok(Response::new(super::feed::stream(feed, envelope)))
    }
}

fn envelope(happening: &Happening) -> Option<Envelope> {
    let (topic, name, value) = match happening {
        Happening::Exit { container, code } => {
            let exit = TaskExit {
                container_id: container.clone(),
                id: container.clone(),
                pid: 1,
                exit_status: code.cast_unsigned(),
                exited_at: Some(SystemTime::now().into()),
            };
            ("/tasks/exit", "TaskExit", exit.encode_to_vec())
        }
        Happening::Oom(container) => {
            let oom = TaskOom { container_id: container.clone() };
            ("/tasks/oom", "TaskOOM", oom.encode_to_vec())
        }
        _ => return None,
    };
    let type_url = format!("containerd.events.{name}");
    Some(Envelope {
        timestamp: Some(SystemTime::now().into()),
        namespace: NAMESPACE.to_owned(),
        topic: topic.to_owned(),
        event: Some(prost_types::Any { type_url, value }),
    })
}

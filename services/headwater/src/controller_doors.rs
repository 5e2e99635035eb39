//! The doors of a controller to other systems: the sources of its objects, the sink of its picture and
//! the answers to requests of nodes. A Kubernetes API is all three; the other sources have a sink and
//! answers of the controller's own.

use std::sync::Arc;

use headwater_controller::{Cloud, ControllerHandle, PodRemoval, Sink, Source};
use headwater_hub::WallClock;
use headwater_kubernetes::{
    AccessError, KubernetesCloud, KubernetesSource, SinkDependencies, SinkMetrics,
};
use prometheus::Registry;
use tokio::sync::watch;

use crate::settings::kubernetes::Kubernetes;

/// The doors of a controller.
pub(crate) struct ControllerDoors {
    pub(crate) sources: Vec<Box<dyn Source>>,
    pub(crate) sink: Box<dyn Sink>,
    pub(crate) answers: Answers,
    /// The reasons why the sink does not write, in sentences.
    pub(crate) sink_troubles: SinkTroubles,
}

/// The reasons why a sink does not write, in sentences.
pub(crate) type SinkTroubles = watch::Receiver<Vec<String>>;

/// The answers to requests of nodes.
pub(crate) struct Answers(Option<Arc<dyn Cloud>>);

/// A Kubernetes API that was looked at.
pub(crate) struct KubernetesApi {
    source: KubernetesSource,
    cloud: KubernetesCloud,
    settings: Kubernetes,
}

impl KubernetesApi {
    /// Looks at the API of the settings once, so that wrong credentials and a server that is too old
    /// end the start. `None`: the controller follows no API.
    ///
    /// # Errors
    /// The API cannot be used until a person acts.
    pub(crate) async fn connect(settings: &Kubernetes) -> Result<Option<Self>, AccessError> {
        let Some(access) = settings.access() else { return Ok(None) };
        let connection = access.connect().await?;
        let cloud = KubernetesCloud::new(connection.clone(), settings.act_as);
        let source = KubernetesSource::new(connection, settings.source());
        source.check().await?;
        let source = source.with_rights(settings.act_as);
        Ok(Some(Self { source, cloud, settings: settings.clone() }))
    }

    /// The doors to the API.
    ///
    /// # Errors
    /// A metric is registered twice.
    pub(crate) fn doors(
        self,
        registry: &Registry,
        wall_clock: WallClock,
    ) -> Result<ControllerDoors, prometheus::Error> {
        let (troubles, sink_troubles) = watch::channel(Vec::new());
        let sink = self.source.sink(SinkDependencies {
            act_as: self.settings.act_as,
            offline: self.settings.offline,
            kubelet: self.settings.kubelet(),
            events: self.settings.events,
            wall_clock,
            metrics: SinkMetrics::new(registry)?,
            troubles,
        });
        Ok(ControllerDoors {
            sources: vec![Box::new(self.source)],
            sink: Box::new(sink),
            answers: Answers(Some(Arc::new(self.cloud))),
            sink_troubles,
        })
    }
}

impl ControllerDoors {
    /// The doors of a controller without a Kubernetes API.
    pub(crate) fn without_api(sources: Vec<Box<dyn Source>>) -> Self {
        Self {
            sources,
            sink: Box::new(PodRemoval),
            answers: Answers(None),
            sink_troubles: watch::channel(Vec::new()).1,
        }
    }
}

impl Answers {
    /// The answers of `controller`, each behind the check of its request.
    pub(crate) fn of(self, controller: &ControllerHandle) -> Arc<dyn Cloud> {
        match self.0 {
            Some(cloud) => controller.checked(cloud),
            None => controller.cloud(),
        }
    }
}

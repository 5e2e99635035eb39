//! The parts of a control plane.

/// A part. The order is that of their starts: each needs those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The database.
    Etcd,
    /// The API.
    ApiServer,
    /// The controllers: workloads, garbage, node lifecycle, service accounts, certificates.
    ControllerManager,
    /// The scheduler.
    Scheduler,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler];

    /// Its name, by which the program knows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }
}

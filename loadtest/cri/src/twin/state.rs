//! Sandboxes, containers, images and names. Pure: time is an argument where a call needs it.
//!
//! The words of the errors are containerd's, as far as the client reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use headwater_cri::proto::{
    Container, ContainerConfig, ContainerFilter, ContainerMetadata, ContainerState,
    ContainerStatus, Image, ImageSpec, LinuxPodSandboxStatus, Namespace, PodSandbox,
    PodSandboxConfig, PodSandboxFilter, PodSandboxMetadata, PodSandboxNetworkStatus,
    PodSandboxState, PodSandboxStatus, RuntimeHandler, RuntimeHandlerFeatures,
};
use tonic::Status;

use super::Oom;
use super::life::Life;

/// The name at the start.
const NAME: &str = "containerd";

/// The version at the start.
const VERSION: &str = "1.6.20-twin";

/// The handlers that it has while it names none.
const UNNAMED_HANDLERS: [&str; 2] = ["", "runc"];

/// The exit code of a container whose program could not be started.
const START_ERROR_CODE: i32 = 128;

/// The exit code of a container whose end was not seen.
const UNKNOWN_CODE: i32 = 255;

/// What pulls of an image end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullOutcome {
    /// The image is there afterwards.
    Pulled,
    /// Nothing listens at the registry.
    Away,
    /// The registry refuses the credentials.
    Refused,
}

/// A pod's sandbox.
#[derive(Clone, Debug)]
struct Sandbox {
    config: PodSandboxConfig,
    handler: String,
    is_ready: bool,
    created_at: i64,
    ip: String,
}

/// A container of a sandbox.
#[derive(Clone, Debug)]
pub(super) struct ContainerRecord {
    sandbox: String,
    config: ContainerConfig,
    state: ContainerState,
    /// Its process ended, and CRI does not know yet.
    is_ending: bool,
    created_at: i64,
    started_at: i64,
    finished_at: i64,
    exit_code: i32,
    reason: &'static str,
    message: &'static str,
    life: Life,
}

/// Everything that the runtime has.
#[derive(Debug, Default)]
pub(super) struct State {
    sandboxes: BTreeMap<String, Sandbox>,
    containers: BTreeMap<String, ContainerRecord>,
    /// Names of sandboxes and containers, with the ids that have them.
    names: BTreeMap<String, String>,
    images: BTreeSet<String>,
    pulls: BTreeMap<String, PullOutcome>,
    lives: BTreeMap<String, Life>,
    starts: BTreeMap<String, u64>,
    /// The names of containers without a status.
    damaged: BTreeSet<String>,
    /// The names of containers whose status does not come.
    held: BTreeSet<String>,
    has_cri_events: bool,
    /// Its network is not ready.
    has_no_network: bool,
    /// Its name, if it is not that of the start.
    name: Option<String>,
    /// Its version, if it is not that of the start.
    version: Option<String>,
    /// The handlers that it names, each with user namespaces. If it names any, it has no other.
    handlers: Vec<String>,
    ids: u64,
}

/// What a start does.
pub(super) enum Start {
    /// It runs this life.
    Runs(Life),
    /// Its program is missing; it has ended.
    Failed,
}

impl State {
    pub(super) fn upgrade(&mut self, version: &str, handlers: &[&str]) {
        self.version = Some(version.to_owned());
        self.handlers = handlers.iter().map(|name| (*name).to_owned()).collect();
    }

    pub(super) fn rename(&mut self, name: &str) {
        self.name = Some(name.to_owned());
    }

    pub(super) fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| NAME.to_owned())
    }

    pub(super) fn version(&self) -> String {
        self.version.clone().unwrap_or_else(|| VERSION.to_owned())
    }

    pub(super) fn handlers(&self) -> Vec<RuntimeHandler> {
        let features =
            RuntimeHandlerFeatures { recursive_read_only_mounts: false, user_namespaces: true };
        let of = |name: &String| RuntimeHandler { name: name.clone(), features: Some(features) };
        self.handlers.iter().map(of).collect()
    }

    /// Whether it runs sandboxes by this handler.
    fn has_handler(&self, handler: &str) -> bool {
        if self.handlers.is_empty() {
            return UNNAMED_HANDLERS.contains(&handler);
        }
        self.handlers.iter().any(|name| name == handler)
    }

    pub(super) fn set_pull(&mut self, image: &str, outcome: PullOutcome) {
        self.pulls.insert(image.to_owned(), outcome);
    }

    pub(super) fn add_image(&mut self, image: &str) {
        self.images.insert(image.to_owned());
    }

    pub(super) fn set_life(&mut self, container: &str, life: Life) {
        self.lives.insert(container.to_owned(), life);
    }

    pub(super) fn damage(&mut self, container: &str) {
        self.damaged.insert(container.to_owned());
    }

    pub(super) fn repair(&mut self, container: &str) {
        self.damaged.remove(container);
    }

    pub(super) fn hold_status(&mut self, container: &str) {
        self.held.insert(container.to_owned());
    }

    pub(super) fn give_status(&mut self, container: &str) {
        self.held.remove(container);
    }

    /// Whether the status of the container with this id does not come.
    pub(super) fn holds_status(&self, id: &str) -> bool {
        let metadata = self.containers.get(id).and_then(|held| held.config.metadata.as_ref());
        metadata.is_some_and(|metadata| self.held.contains(&metadata.name))
    }

    pub(super) fn set_cri_events(&mut self, are_there: bool) {
        self.has_cri_events = are_there;
    }

    pub(super) fn set_network(&mut self, is_ready: bool) {
        self.has_no_network = !is_ready;
    }

    pub(super) fn has_no_network(&self) -> bool {
        self.has_no_network
    }

    pub(super) fn has_cri_events(&self) -> bool {
        self.has_cri_events
    }

    pub(super) fn starts(&self, name: &str) -> u64 {
        self.starts.get(name).copied().unwrap_or_default()
    }

    /// What a restart of the machine does.
    pub(super) fn lose_all(&mut self) {
        for sandbox in self.sandboxes.values_mut() {
            sandbox.is_ready = false;
        }
        let running: Vec<String> = self.containers.keys().cloned().collect();
        for id in running {
            self.end(&id, 255, Oom::No);
        }
    }

    /// Removes all sandboxes and containers. No process of theirs goes on.
    pub(super) fn remove_all(&mut self) {
        self.sandboxes.clear();
        self.containers.clear();
        self.names.clear();
    }

    fn new_id(&mut self) -> String {
        self.ids += 1;
        format!("{:064x}", self.ids)
    }

    /// Gives a name to an id, or says which id has it.
    fn reserve(&mut self, kind: &str, name: String) -> Result<String, Status> {
        if let Some(id) = self.names.get(&name) {
            let text = format!(
                "failed to reserve {kind} name \"{name}\": name \"{name}\" is reserved for \"{id}\""
            );
            return Err(Status::unknown(text));
        }
        let id = self.new_id();
        self.names.insert(name, id.clone());
        Ok(id)
    }

    fn release(&mut self, id: &str) {
        self.names.retain(|_, held| held != id);
    }

    pub(super) fn run_sandbox(
        &mut self,
        config: PodSandboxConfig,
        handler: String,
    ) -> Result<String, Status> {
        if !self.has_handler(&handler) {
            let text = format!("no runtime for \"{handler}\" is configured");
            return Err(Status::unknown(format!("failed to get sandbox runtime: {text}")));
        }
        let pod = config.metadata.clone().unwrap_or_default();
        let PodSandboxMetadata { name, namespace, uid, attempt } = pod;
        let id = self.reserve("sandbox", format!("{name}_{namespace}_{uid}_{attempt}"))?;
        let ip = format!("10.244.{}.{}", self.ids / 250, self.ids % 250 + 2);
        let sandbox = Sandbox { config, handler, is_ready: true, created_at: now(), ip };
        self.sandboxes.insert(id.clone(), sandbox);
        Ok(id)
    }

    /// The running containers of a sandbox that stops.
    pub(super) fn stop_sandbox(&mut self, id: &str) -> Result<Vec<String>, Status> {
        let sandbox = self.sandboxes.get_mut(id).ok_or_else(|| no_sandbox(id))?;
        sandbox.is_ready = false;
        let its = self.containers.iter().filter(|(_, container)| container.sandbox == id);
        let running =
            its.filter(|(_, container)| container.state == ContainerState::ContainerRunning);
        Ok(running.map(|(id, _)| id.clone()).collect())
    }

    /// Removes a stopped sandbox and returns the containers that it had.
    pub(super) fn remove_sandbox(&mut self, id: &str) -> Vec<String> {
        let its = self.containers.iter().filter(|(_, container)| container.sandbox == id);
        let its: Vec<String> = its.map(|(id, _)| id.clone()).collect();
        its.iter().for_each(|container| self.remove_container(container));
        self.sandboxes.remove(id);
        self.release(id);
        its
    }

    pub(super) fn sandbox_status(&self, id: &str) -> Result<PodSandboxStatus, Status> {
        let sandbox = self.sandboxes.get(id).ok_or_else(|| no_sandbox(id))?;
        let config = &sandbox.config;
        let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        let options = security.and_then(|security| security.namespace_options.clone());
        let namespaces = Some(Namespace { options: Some(options.unwrap_or_default()) });
        Ok(PodSandboxStatus {
            id: id.to_owned(),
            linux: Some(LinuxPodSandboxStatus { namespaces }),
            metadata: config.metadata.clone(),
            state: sandbox.state().into(),
            created_at: sandbox.created_at,
            network: Some(PodSandboxNetworkStatus {
                ip: sandbox.address(),
                additional_ips: Vec::new(),
            }),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            runtime_handler: sandbox.handler.clone(),
        })
    }

    pub(super) fn list_sandboxes(&self, filter: &PodSandboxFilter) -> Vec<PodSandbox> {
        let fits = |(id, sandbox): &(&String, &Sandbox)| {
            (filter.id.is_empty() || **id == filter.id)
                && filter.state.as_ref().is_none_or(|wanted| wanted.state() == sandbox.state())
                && has(&sandbox.config.labels, &filter.label_selector)
        };
        let list = self.sandboxes.iter().filter(fits).map(|(id, sandbox)| PodSandbox {
            id: id.clone(),
            metadata: sandbox.config.metadata.clone(),
            state: sandbox.state().into(),
            created_at: sandbox.created_at,
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            runtime_handler: sandbox.handler.clone(),
        });
        list.collect()
    }

    /// Where the logs of a sandbox lie; empty for no sandbox.
    pub(super) fn log_directory(&self, sandbox: &str) -> String {
        self.sandboxes
            .get(sandbox)
            .map(|held| held.config.log_directory.clone())
            .unwrap_or_default()
    }

    pub(super) fn create(
        &mut self,
        sandbox: &str,
        config: ContainerConfig,
    ) -> Result<String, Status> {
        let held = self.sandboxes.get(sandbox);
        let missing =
            || Status::not_found(format!("failed to find sandbox id \"{sandbox}\": not found"));
        let held = held.ok_or_else(missing)?;
        if !held.is_ready {
            let text = "failed to get sandbox container task: no running task found";
            return Err(Status::not_found(format!("{text}: task {sandbox} not found: not found")));
        }
        let pod = held.config.metadata.clone().unwrap_or_default();
        let ContainerMetadata { name, attempt } = config.metadata.clone().unwrap_or_default();
        let full = format!("{name}_{}_{}_{}_{attempt}", pod.name, pod.namespace, pod.uid);
        let id = self.reserve("container", full)?;
        let image = config.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
        if self.image(&image).is_none() {
            self.release(&id);
            return Err(Status::not_found(format!(
                "failed to resolve image \"{image}\": not found"
            )));
        }
        let life = self.lives.get(&name).copied().unwrap_or_else(|| Life::of(&config.command));
        let container = ContainerRecord {
            sandbox: sandbox.to_owned(),
            config,
            state: ContainerState::ContainerCreated,
            is_ending: false,
            created_at: now(),
            started_at: 0,
            finished_at: 0,
            exit_code: 0,
            reason: "",
            message: "",
            life,
        };
        self.containers.insert(id.clone(), container);
        Ok(id)
    }

    pub(super) fn start(&mut self, id: &str) -> Result<Start, Status> {
        let container = self.containers.get_mut(id).ok_or_else(|| no_container(id))?;
        if container.state != ContainerState::ContainerCreated {
            return Err(container.wrong_state());
        }
        if container.life == Life::Missing {
            container.finish(START_ERROR_CODE, "StartError");
            return Ok(Start::Failed);
        }
        container.state = ContainerState::ContainerRunning;
        container.started_at = now();
        let name = container.config.metadata.clone().unwrap_or_default().name;
        let life = container.life;
        *self.starts.entry(name).or_default() += 1;
        Ok(Start::Runs(life))
    }

    /// The state of a running container is unknown from now on, by its name. With a code it ends with it now, and the
    /// runtime finds that end when it is asked to end the container.
    pub(super) fn lose(&mut self, name: &str, code: Option<i32>) {
        let of_name = |held: &&mut ContainerRecord| {
            held.config.metadata.as_ref().is_some_and(|metadata| metadata.name == name)
                && held.state == ContainerState::ContainerRunning
        };
        if let Some(held) = self.containers.values_mut().find(of_name) {
            if let Some(code) = code {
                held.finish(code, "Error");
            }
            held.state = ContainerState::ContainerUnknown;
        }
    }

    /// Ends a container whose state is unknown, if it is.
    pub(super) fn end_unknown(&mut self, id: &str) {
        let held = self.containers.get_mut(id);
        if let Some(held) = held.filter(|it| it.state == ContainerState::ContainerUnknown) {
            if held.finished_at == 0 {
                held.finish(UNKNOWN_CODE, "Unknown");
            }
            held.state = ContainerState::ContainerExited;
        }
    }

    /// The life of a container that runs; `None` if there is nothing to stop.
    pub(super) fn running(&self, id: &str) -> Result<Option<Life>, Status> {
        let container = self.containers.get(id).ok_or_else(|| no_container(id))?;
        Ok((container.state == ContainerState::ContainerRunning).then_some(container.life))
    }

    /// The id of a running container, by id or name, if its end begins now.
    pub(super) fn begin_end(&mut self, container: &str) -> Option<String> {
        let (id, held) = self.containers.iter_mut().find(|(id, held)| {
            let name = held.config.metadata.as_ref().map(|metadata| metadata.name.as_str());
            (id.as_str() == container || name == Some(container))
                && held.state == ContainerState::ContainerRunning
                && !held.is_ending
        })?;
        held.is_ending = true;
        Some(id.clone())
    }

    pub(super) fn end(&mut self, id: &str, code: i32, oom: Oom) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.state == ContainerState::ContainerRunning {
            let reason = match (oom, code) {
                (Oom::Yes, _) => "OOMKilled",
                (Oom::No, 0) => "Completed",
                (Oom::No, _) => "Error",
            };
            container.finish(code, reason);
        }
    }

    pub(super) fn remove_container(&mut self, id: &str) {
        self.containers.remove(id);
        self.release(id);
    }

    pub(super) fn exec(&self, id: &str) -> Result<(), Status> {
        let container = self.containers.get(id).ok_or_else(|| no_container(id))?;
        if container.state == ContainerState::ContainerRunning {
            return Ok(());
        }
        Err(container.wrong_state())
    }

    pub(super) fn container_status(&self, id: &str) -> Result<ContainerStatus, Status> {
        let container = self.containers.get(id).ok_or_else(|| no_container(id))?;
        let config = &container.config;
        let name = config.metadata.as_ref().map(|metadata| metadata.name.as_str());
        if name.is_some_and(|name| self.damaged.contains(name)) {
            return Err(Status::unknown(format!("failed to get the metadata of \"{id}\"")));
        }
        let log =
            self.sandboxes.get(&container.sandbox).map(|pod| pod.config.log_directory.clone());
        Ok(ContainerStatus {
            id: id.to_owned(),
            metadata: config.metadata.clone(),
            state: container.state.into(),
            created_at: container.created_at,
            started_at: container.started_at,
            finished_at: container.finished_at,
            exit_code: container.exit_code,
            image: config.image.clone(),
            image_ref: container.image_id(),
            reason: container.reason.to_owned(),
            message: container.message.to_owned(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            mounts: config.mounts.clone(),
            log_path: format!("{}/{}", log.unwrap_or_default(), config.log_path),
            ..ContainerStatus::default()
        })
    }

    pub(super) fn list_containers(&self, filter: &ContainerFilter) -> Vec<Container> {
        let fits = |(id, container): &(&String, &ContainerRecord)| {
            (filter.id.is_empty() || **id == filter.id)
                && (filter.pod_sandbox_id.is_empty() || container.sandbox == filter.pod_sandbox_id)
                && filter.state.as_ref().is_none_or(|wanted| wanted.state() == container.state)
                && has(&container.config.labels, &filter.label_selector)
        };
        let list = self.containers.iter().filter(fits).map(|(id, container)| Container {
            id: id.clone(),
            pod_sandbox_id: container.sandbox.clone(),
            metadata: container.config.metadata.clone(),
            image: container.config.image.clone(),
            image_ref: container.image_id(),
            state: container.state.into(),
            created_at: container.created_at,
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
            ..Container::default()
        });
        list.collect()
    }

    /// The image of a name or an id.
    pub(super) fn image(&self, name: &str) -> Option<Image> {
        let found = self.images.iter().find(|image| *image == name || image_id(image) == name)?;
        Some(Image {
            id: image_id(found),
            repo_tags: vec![found.clone()],
            size: 1,
            spec: Some(ImageSpec::default()),
            ..Image::default()
        })
    }

    pub(super) fn list_images(&self) -> Vec<Image> {
        self.images.iter().filter_map(|image| self.image(image)).collect()
    }

    pub(super) fn pull(&mut self, name: &str) -> Result<String, Status> {
        let failed = |code, why: &str| {
            Status::new(code, format!("failed to pull and unpack image \"{name}\": {why}"))
        };
        if name.chars().any(|c| c.is_uppercase() || c.is_whitespace()) {
            let text = format!("failed to parse image reference \"{name}\"");
            return Err(Status::unknown(format!("{text}: invalid reference format")));
        }
        match self.pulls.get(name) {
            Some(PullOutcome::Pulled) => {
                self.images.insert(name.to_owned());
                Ok(image_id(name))
            }
            Some(PullOutcome::Away) => Err(failed(
                tonic::Code::Unknown,
                "failed to resolve reference: failed to do request: dial tcp: connect: connection refused",
            )),
            Some(PullOutcome::Refused) => Err(failed(
                tonic::Code::Unknown,
                "failed to resolve reference: unexpected status code 401 Unauthorized",
            )),
            None => Err(failed(tonic::Code::NotFound, "failed to resolve reference: not found")),
        }
    }

    pub(super) fn remove_image(&mut self, name: &str) {
        self.images.retain(|image| image != name && image_id(image) != name);
    }
}

impl Sandbox {
    fn state(&self) -> PodSandboxState {
        if self.is_ready { PodSandboxState::SandboxReady } else { PodSandboxState::SandboxNotready }
    }

    /// The address; a pod in the machine's network has none of its own.
    fn address(&self) -> String {
        let linux = self.config.linux.as_ref();
        let security = linux.and_then(|linux| linux.security_context.as_ref());
        let options = security.and_then(|security| security.namespace_options.as_ref());
        let is_on_node = options
            .is_some_and(|options| options.network() == headwater_cri::proto::NamespaceMode::Node);
        if is_on_node || !self.is_ready { String::new() } else { self.ip.clone() }
    }
}

impl ContainerRecord {
    fn finish(&mut self, code: i32, reason: &'static str) {
        self.state = ContainerState::ContainerExited;
        self.exit_code = code;
        self.reason = reason;
        self.finished_at = now();
        self.is_ending = false;
    }

    fn wrong_state(&self) -> Status {
        Status::unknown(format!("container is in {} state", self.state.as_str_name()))
    }

    fn image_id(&self) -> String {
        image_id(&self.config.image.as_ref().map(|image| image.image.clone()).unwrap_or_default())
    }
}

fn no_sandbox(id: &str) -> Status {
    Status::not_found(format!("an error occurred when try to find sandbox \"{id}\": not found"))
}

fn no_container(id: &str) -> Status {
    Status::not_found(format!("an error occurred when try to find container \"{id}\": not found"))
}

/// The id of an image: made of its name, since it has no content. An id is its own.
fn image_id(name: &str) -> String {
    if name.starts_with("sha256:") {
        return name.to_owned();
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("sha256:{}", digits.collect::<String>())
}

fn has(
    labels: &std::collections::HashMap<String, String>,
    wanted: &std::collections::HashMap<String, String>,
) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// The time as CRI writes it: nanoseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

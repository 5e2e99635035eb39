//! `headwater logs`: the logs of containers.

use std::io::Write;

use headwater_kubelet::client::{LogRequest, NodeClient};
use headwater_object::ObjectType;
use headwater_operator::client::{self, ConnectError};
use headwater_proto::operator::operator_client::OperatorClient;
use headwater_proto::operator::{GetRequest, LogsRequest};
use serde_json::Value;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::get::by_name;
use super::pod_target::{PodPlace, PodTarget, check_no_tls};
use crate::args::Logs;
use crate::exit::{CommandResult, Failure, Outcome};
use crate::render::plain;
use crate::selector::Selector;

/// The lines of each pod that a selector selects, unless the command asks for another number: as in
/// kubectl.
const SELECTED_TAIL: u64 = 10;

/// The annotation by which a pod names its workload.
const WORKLOAD_ANNOTATION: &str = "headwater/workload";

/// The object whose log a word names.
#[derive(Debug, PartialEq, Eq)]
enum LogTarget<'a> {
    Pod(&'a str),
    Workload(&'static ObjectType, &'a str),
}

pub(super) async fn run(args: Logs) -> CommandResult {
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let since_ms = args.since.map_or(0, |since| {
        now_ms.saturating_sub(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)).max(1)
    });
    if args.hub.hub.is_some() {
        return of_server(&args, "with --hub").await;
    }
    check_no_tls(&args.hub)?;
    let selector = args.selector.as_deref();
    let selected = selector.map(|selector| Selector::parse(Some(selector), None)).transpose()?;
    let named = args.pod.as_deref().map(named).transpose()?;
    let operator = client::connect(&args.target.data).await;
    if matches!(operator, Err(ConnectError::NotRunning { .. })) && has_worker(&args).await {
        return of_server(&args, "in the directory of `headwater edged`").await;
    }
    let mut operator = operator?;
    let pods = match (&selected, named) {
        (Some(selector), _) => selected_pods(&mut operator, selector, &args).await?,
        (None, Some(LogTarget::Workload(of, name))) => {
            vec![first_pod(&mut operator, of, name, &args.namespace).await?]
        }
        (None, Some(LogTarget::Pod(name))) => vec![name.to_owned()],
        (None, None) => {
            return Err(Failure::Usage("name a pod, or select some with -l".to_owned()));
        }
    };
    let tail = args.tail.or(selected.is_some().then_some(SELECTED_TAIL));
    let request = |pod: String| LogsRequest {
        pod,
        namespace: args.namespace.clone(),
        container: args.container.clone().unwrap_or_default(),
        follow: args.follow,
        previous: args.previous,
        all_containers: args.all_containers,
        tail,
        since_ms,
        timestamps: args.timestamps,
        prefix: args.prefix,
    };
    if args.follow {
        let mut streams = JoinSet::new();
        for pod in pods {
            streams.spawn(print(operator.clone(), request(pod)));
        }
        while let Some(ended) = streams.join_next().await {
            ended.map_err(|error| Failure::Failed(error.into()))??;
        }
    } else {
        for pod in pods {
            print(operator.clone(), request(pod)).await?;
        }
    }
    Ok(Outcome::Done)
}

/// Whether a pod worker runs in the directory: `headwater edged` has no operator API. A process that was killed leaves its
/// sockets behind.
async fn has_worker(args: &Logs) -> bool {
    for node in NodeClient::all(&args.target.data).unwrap_or_default() {
        if node.pods().await.is_ok() {
            return true;
        }
    }
    false
}

/// Prints the log of a container of a pod that a server with a kubelet's paths reaches: that of a hub, or of the pod worker
/// itself. It knows neither labels nor workloads. `place` names it for a person.
async fn of_server(args: &Logs, place: &str) -> CommandResult {
    let usage = |words: &str| Err(Failure::Usage(format!("{place}, {words}")));
    let word = match args.pod.as_deref().map(named).transpose()? {
        Some(LogTarget::Pod(name)) => name,
        _ => return usage("name one pod: neither labels nor workloads are known there"),
    };
    if args.all_containers || args.prefix {
        return usage("name one container: there is no --all-containers and no --prefix");
    }
    let place = PodPlace { namespace: &args.namespace, word };
    let named = args.container.as_deref();
    let target = PodTarget::find(&args.target, &args.hub, place, named.is_none()).await?;
    let request = LogRequest {
        namespace: args.namespace.clone(),
        container: target.container(named)?,
        pod: target.name,
        follow: args.follow,
        previous: args.previous,
        timestamps: args.timestamps,
        tail: args.tail,
        since_seconds: args.since.map(|since| since.as_secs().max(1)),
    };
    let mut log = target.node.log(&request).await?;
    while let Some(bytes) = log.next().await? {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&bytes)?;
        stdout.flush()?;
    }
    Ok(Outcome::Done)
}

/// Prints the log of one pod.
async fn print(mut operator: OperatorClient<Channel>, request: LogsRequest) -> Result<(), Failure> {
    let mut chunks = operator.logs(request).await?.into_inner();
    while let Some(chunk) = chunks.message().await? {
        if !chunk.note.is_empty() {
            eprintln!("{}", plain(&chunk.note));
        }
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&chunk.data)?;
        stdout.flush()?;
    }
    Ok(())
}

/// The pods that `selector` selects; following is limited, as in kubectl.
async fn selected_pods(
    operator: &mut OperatorClient<Channel>,
    selector: &Selector,
    args: &Logs,
) -> Result<Vec<String>, Failure> {
    let pods = pods(operator, &args.namespace, |pod| selector.matches(pod)).await?;
    if pods.is_empty() {
        eprintln!("No resources found in {} namespace.", plain(&args.namespace));
    }
    let max = args.max_log_requests;
    if args.follow && pods.len() > max {
        return Err(Failure::message(format!(
            "{} pods are selected, and at most {max} are followed at once: select fewer, or raise \
             --max-log-requests",
            pods.len()
        )));
    }
    Ok(pods.iter().map(|pod| name(pod).to_owned()).collect())
}

/// The pod of a workload whose log is shown: a Ready one before others.
async fn first_pod(
    operator: &mut OperatorClient<Channel>,
    of: &ObjectType,
    workload: &str,
    namespace: &str,
) -> Result<String, Failure> {
    let reference = format!("{}/{workload}", of.kind);
    let is_of = |pod: &Value| pod["metadata"]["annotations"][WORKLOAD_ANNOTATION] == *reference;
    let mut pods = pods(operator, namespace, is_of).await?;
    pods.sort_by_key(|pod| !is_ready(pod));
    let Some(first) = pods.first().map(|pod| name(pod).to_owned()) else {
        let (title, namespace) = (plain(workload), plain(namespace));
        return Err(Failure::message(format!(
            "{} {title:?} has no pod in namespace {namespace}: `headwater get {}` shows what there is",
            of.name, of.plural
        )));
    };
    if pods.len() > 1 {
        eprintln!("Found {} pods, using pod/{}", pods.len(), plain(&first));
    }
    Ok(first)
}

/// The pods of a namespace that `is_meant` selects, by name.
async fn pods(
    operator: &mut OperatorClient<Channel>,
    namespace: &str,
    is_meant: impl Fn(&Value) -> bool,
) -> Result<Vec<Value>, Failure> {
    let request = GetRequest {
        r#type: "pod".to_owned(),
        namespace: namespace.to_owned(),
        ..GetRequest::default()
    };
    let mut parts = operator.get(request).await?.into_inner();
    let mut pods = Vec::new();
    while let Some(part) = parts.message().await? {
        for object in &part.objects {
            let pod: Value = serde_json::from_slice(object)?;
            if is_meant(&pod) {
                pods.push(pod);
            }
        }
    }
    pods.sort_by(by_name);
    Ok(pods)
}

/// What `word` names: a pod, `pod/NAME`, or a workload as `deploy/NAME`.
fn named(word: &str) -> Result<LogTarget<'_>, Failure> {
    let Some((of, name)) = word.split_once('/') else { return Ok(LogTarget::Pod(word)) };
    if let Some(of) = ObjectType::workload_named(of) {
        return Ok(LogTarget::Workload(of, name));
    }
    match ObjectType::named(of) {
        Some(of) if of.name == "pod" => Ok(LogTarget::Pod(name)),
        _ => Err(Failure::Usage(format!(
            "{of} is neither a pod nor a workload: only pods have logs"
        ))),
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

fn name(pod: &Value) -> &str {
    pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_with_its_type_or_without() {
        for word in ["web", "pod/web", "po/web", "pods/web"] {
            assert_eq!(named(word).expect("a pod"), LogTarget::Pod("web"));
        }
        assert!(matches!(named("svc/web"), Err(Failure::Usage(_))));
    }

    #[test]
    fn a_workload_is_named_with_its_type() {
        for word in ["deploy/web", "deployment/web", "sts/web", "Job/web", "rc/web"] {
            assert!(matches!(named(word), Ok(LogTarget::Workload(_, "web"))), "{word}");
        }
    }
}

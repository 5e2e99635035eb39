//! The way to the API: a kubeconfig or the service account of a pod, and the client made of it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::config::{AuthInfo, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tower::util::service_fn;
use tower::{BoxError, Service, ServiceBuilder};

use crate::failure::RequestError;
use crate::plugin_credentials::PluginCredentials;
use crate::rights::{Right, missing};
use crate::server::{ServerVersion, ask_version};

/// How the API is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// By a kubeconfig.
    Kubeconfig {
        /// The file.
        file: PathBuf,
        /// The context; `None`: the current one of the file.
        context: Option<String>,
    },
    /// By the service account of the pod that this process runs in.
    InCluster,
}

/// A client, and the address of its server.
#[derive(Clone)]
pub struct Connection {
    pub(crate) client: Client,
    pub(crate) server: String,
}

impl Connection {
    /// A connection over a service of HTTP requests, such as an API server in this process. `server` names
    /// it in messages.
    pub fn over<S, B>(service: S, server: impl Into<String>) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self { client: Client::new(service, "default"), server: server.into() }
    }
}

/// Why there is no way to the API.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The kubeconfig cannot be read.
    #[error("the kubeconfig {file} cannot be read; name a file that this process may read")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The kubeconfig has no such context.
    #[error("the kubeconfig {file} has no context {context:?}; it has {known}")]
    NoContext {
        /// The file.
        file: PathBuf,
        /// The context.
        context: String,
        /// The contexts that there are.
        known: String,
    },
    /// The kubeconfig names no current context.
    #[error(
        "the kubeconfig {file} has no current context; name one: --context NAME (it has {known})"
    )]
    NoCurrentContext {
        /// The file.
        file: PathBuf,
        /// The contexts that there are.
        known: String,
    },
    /// The context names a cluster or a user that the kubeconfig does not have.
    #[error(
        "the context {context:?} of the kubeconfig {file} names the {kind} {name:?}, and the file has \
         {known}; correct the context, or add the {kind}"
    )]
    NoEntry {
        /// The file.
        file: PathBuf,
        /// The context.
        context: String,
        /// What it names: a cluster or a user.
        kind: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The kubeconfig is wrong in another way.
    #[error("the kubeconfig {file} cannot be used; correct it")]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: Box<KubeconfigError>,
    },
    /// This process runs in no pod of a cluster, or its pod has no service account.
    #[error(
        "there is no access to the API from inside a cluster; start the controller in a pod with a \
         service account whose token is mounted, or name a kubeconfig: --kubeconfig FILE"
    )]
    NotInCluster(#[source] Box<InClusterError>),
    /// The credentials of the kubeconfig cannot be used, or its exec plugin fails.
    #[error("there is no client for the API server at {server}; check the user of {origin}")]
    Client {
        /// The address of the server.
        server: String,
        /// Where the credentials are from.
        origin: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// The plugin that gives the credentials does not end.
    #[error(
        "the plugin {plugin:?} of {origin} gives no credentials within {within:?}; run it by hand, \
         then correct it or the user of {origin}"
    )]
    SlowPlugin {
        /// The command of the plugin.
        plugin: String,
        /// Where the credentials are from.
        origin: String,
        /// How long it may take.
        within: Duration,
    },
    /// The API server cannot be used, and only a person can change that.
    #[error("{0}")]
    Refused(String),
}

/// How long a connection may take to open.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// How long a plugin may take to give credentials. A plugin asks a server or reads a card, in seconds; a person
/// at the terminal has time for a password.
const PLUGIN_WITHIN: Duration = Duration::from_secs(30);

/// How often an idle connection is probed, so that one to a machine that is gone is closed.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

impl Access {
    /// Checks the kubeconfig. No connection is opened, no plugin is run.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub fn check(&self) -> Result<(), AccessError> {
        match self {
            Self::Kubeconfig { file, context } => {
                let kubeconfig = read(file)?;
                chosen_context(&kubeconfig, file, context.as_deref()).map(drop)
            }
            Self::InCluster => Config::incluster().map(drop).map_err(not_in_cluster),
        }
    }

    /// Makes a client. Runs the exec plugin of the kubeconfig, if it has one; opens no connection.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub async fn connect(&self) -> Result<Connection, AccessError> {
        self.connect_within(PLUGIN_WITHIN).await
    }

    /// Makes a client. A plugin has to give its credentials `within` this time.
    async fn connect_within(&self, within: Duration) -> Result<Connection, AccessError> {
        let (config, origin) = match self {
            Self::Kubeconfig { file, context } => {
                let kubeconfig = read(file)?;
                let context = chosen_context(&kubeconfig, file, context.as_deref())?;
                let options =
                    KubeConfigOptions { context: Some(context), ..KubeConfigOptions::default() };
                let config = Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .map_err(|error| malformed(file, error))?;
                (config, file.display().to_string())
            }
            Self::InCluster => {
                let config = Config::incluster().map_err(not_in_cluster)?;
                (config, "the pod's service account".to_owned())
            }
        };
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let made = match plugin_of(&config.auth_info) {
            None => client(config),
            Some(plugin) => match timeout(within, client_by_plugin(config)).await {
                Ok(made) => made,
                Err(_) => return Err(AccessError::SlowPlugin { plugin, origin, within }),
            },
        };
        let client = made.map_err(|error| AccessError::Client {
            server: server.clone(),
            origin,
            source: Box::new(error),
        })?;
        Ok(Connection { client, server })
    }
}

impl Connection {
    /// Asks the server for its version and its time.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub async fn version(&self) -> Result<ServerVersion, AccessError> {
        ask_version(&self.client).await.map_err(|error| self.refused(&error))
    }

    /// Asks the server about each right, and returns those that this client lacks.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub async fn missing(&self, rights: Vec<Right>) -> Result<Vec<Right>, AccessError> {
        missing(&self.client, rights).await.map_err(|error| self.refused(&error))
    }

    /// Sends a request whose path is below the server's address, and returns the body of the answer.
    ///
    /// # Errors
    /// The server does not answer, or refuses: then nothing or, without an answer, perhaps all was done.
    pub async fn send(&self, request: http::Request<Vec<u8>>) -> Result<String, AccessError> {
        let sent = self.client.request_text(request).await;
        sent.map_err(|error| self.refused(&RequestError::Client(Box::new(error))))
    }

    fn refused(&self, error: &RequestError) -> AccessError {
        AccessError::Refused(error.describe(&self.server))
    }
}

/// Makes the client of a configuration. Not the client that kube makes by itself: that one repeats
/// failed requests up to 15 times, for minutes, and holds small requests back (Nagle's algorithm).
fn client(mut config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        // The client of kube refuses a proxy by name.
        config.default_retry = false;
        return Client::try_from(config);
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE_INTERVAL));
    connector.set_connect_timeout(Some(CONNECT_WITHIN));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let auth = config.auth_layer()?;
    if let (Some(auth), Some(plugin)) = (&auth, plugin_of(&config.auth_info)) {
        let credentials = PluginCredentials::new(plugin, auth, PLUGIN_WITHIN);
        let authorized = service_fn(move |request: http::Request<Body>| {
            let (credentials, http) = (credentials.clone(), http.clone());
            async move {
                let request = credentials.authorize(request).await?;
                http.request(request).await.map_err(BoxError::from)
            }
        });
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .layer(config.extra_headers_layer()?)
            .service(authorized);
        return Ok(Client::new(service, config.default_namespace));
    }
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(auth)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

/// The program that gives the credentials of a user, if one does.
fn plugin_of(user: &AuthInfo) -> Option<String> {
    let exec = user.exec.as_ref().map(|exec| exec.command.clone().unwrap_or_default());
    exec.or_else(|| user.auth_provider.as_ref().map(|provider| provider.name.clone()))
}

/// Makes the client of a configuration whose credentials a plugin gives. kube blocks until the plugin ends, so a thread
/// of its own waits for it: no shutdown of the runtime waits for that thread, and the process ends beside it.
async fn client_by_plugin(config: Config) -> Result<Client, kube::Error> {
    let runtime = Handle::current();
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        // A client starts a task.
        let _entered = runtime.enter();
        // A caller that no longer waits needs no client.
        drop(sender.send(client(config)));
    });
    receiver.await.expect("the thread sends before it ends")
}

fn read(file: &Path) -> Result<Kubeconfig, AccessError> {
    Kubeconfig::read_from(file).map_err(|error| match error {
        KubeconfigError::ReadConfig(source, _) => {
            AccessError::Unreadable { file: file.to_owned(), source }
        }
        error => malformed(file, error),
    })
}

/// The context to use: the given one, else the current one. The file has the cluster and the user that it names.
fn chosen_context(
    kubeconfig: &Kubeconfig,
    file: &Path,
    context: Option<&str>,
) -> Result<String, AccessError> {
    let names = || kubeconfig.contexts.iter().map(|one| one.name.as_str());
    let current = kubeconfig.current_context.as_deref().filter(|current| !current.is_empty());
    let Some(context) = context.or(current) else {
        return Err(AccessError::NoCurrentContext { file: file.to_owned(), known: list(names()) });
    };
    let Some(named) = kubeconfig.contexts.iter().find(|one| one.name == context) else {
        let (file, context) = (file.to_owned(), context.to_owned());
        return Err(AccessError::NoContext { file, context, known: list(names()) });
    };
    // A context without a content is malformed, which kube finds.
    if let Some(content) = &named.context {
        let clusters: Vec<_> = kubeconfig.clusters.iter().map(|one| one.name.as_str()).collect();
        let users: Vec<_> = kubeconfig.auth_infos.iter().map(|one| one.name.as_str()).collect();
        // Without a user, requests have no credentials: a server on loopback may want none.
        let user = content.user.as_deref().filter(|user| !user.is_empty());
        let entries =
            [("cluster", Some(content.cluster.as_str()), clusters), ("user", user, users)];
        for (kind, name, known) in entries {
            if let Some(name) = name.filter(|name| !known.contains(name)) {
                return Err(AccessError::NoEntry {
                    file: file.to_owned(),
                    context: context.to_owned(),
                    kind,
                    name: name.to_owned(),
                    known: list(known.into_iter()),
                });
            }
        }
    }
    Ok(context.to_owned())
}

/// Names in words.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn malformed(file: &Path, error: KubeconfigError) -> AccessError {
    AccessError::Malformed { file: file.to_owned(), source: Box::new(error) }
}

fn not_in_cluster(error: InClusterError) -> AccessError {
    AccessError::NotInCluster(Box::new(error))
}

#[cfg(test)]
mod tests {
    use headwater_telemetry::error_chain;

    use super::*;

    const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}]
contexts:
- {name: here, context: {cluster: c, user: u}}
- {name: plugin, context: {cluster: c, user: p}}
- {name: slow, context: {cluster: c, user: s}}
- {name: no-user, context: {cluster: c, user: gone}}
- {name: no-cluster, context: {cluster: lost, user: u}}
- {name: anonymous, context: {cluster: c, user: ""}}
users:
- {name: u, user: {token: secret}}
- {name: p, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: "false",
     interactiveMode: Never}}}
- {name: s, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: "sleep",
     args: ["20"], interactiveMode: Never}}}
"#;

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, text).expect("written");
        (folder, file)
    }

    fn refused(file: &Path, context: Option<&str>) -> String {
        let context = context.map(ToOwned::to_owned);
        let access = Access::Kubeconfig { file: file.to_owned(), context };
        error_chain(&access.check().expect_err("it cannot be used"))
    }

    #[test]
    fn a_kubeconfig_that_cannot_be_used_is_named_with_the_reason() {
        let (folder, file) = written(KUBECONFIG);
        let access = Access::Kubeconfig { file: file.clone(), context: None };
        access.check().expect("it can be used");
        let text = refused(&file, Some("there"));
        assert!(text.contains("has no context \"there\"; it has here, plugin, slow"), "{text}");
        let text = refused(&file, Some("no-user"));
        let named = "names the user \"gone\", and the file has u, p, s; correct the context";
        assert!(text.contains("\"no-user\"") && text.contains(named), "{text}");
        let text = refused(&file, Some("no-cluster"));
        assert!(text.contains("names the cluster \"lost\", and the file has c;"), "{text}");
        let context = Some("anonymous".to_owned());
        Access::Kubeconfig { file: file.clone(), context }.check().expect("it needs no user");
        let text = refused(&folder.path().join("none"), None);
        assert!(text.contains("none cannot be read") && text.contains("No such file"), "{text}");
        let (_folder, file) = written("clusters: 7");
        let text = refused(&file, None);
        assert!(text.contains("cannot be used; correct it: "), "{text}");
        let (_folder, file) = written("apiVersion: v1\nkind: Config\n");
        let text = refused(&file, None);
        assert!(text.contains("has no current context"), "{text}");
    }

    #[tokio::test]
    async fn an_exec_plugin_that_fails_is_named() {
        let (_folder, file) = written(KUBECONFIG);
        let context = Some("plugin".to_owned());
        let access = Access::Kubeconfig { file, context };
        let Err(error) = access.connect().await else { panic!("the plugin fails") };
        let text = error_chain(&error);
        assert!(text.contains("https://127.0.0.1:6443; check the user of "), "{text}");
        assert!(text.contains("'\"false\"'") || text.contains("false"), "{text}");
    }

    #[tokio::test]
    async fn an_exec_plugin_that_does_not_end_is_named_in_bounded_time() {
        let (_folder, file) = written(KUBECONFIG);
        let access = Access::Kubeconfig { file, context: Some("slow".to_owned()) };
        let connected = access.connect_within(Duration::from_millis(20)).await;
        let Err(error) = connected else { panic!("the plugin does not end") };
        let text = error_chain(&error);
        assert!(text.contains("the plugin \"sleep\" of ") && text.contains("20ms; run"), "{text}");
    }

    #[test]
    fn outside_of_a_cluster_there_is_no_service_account() {
        let text = error_chain(&Access::InCluster.check().expect_err("no pod"));
        assert!(text.contains("--kubeconfig FILE"), "{text}");
    }
}

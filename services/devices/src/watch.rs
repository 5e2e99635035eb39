//! The task of a plugin, from its registration to its end.

use std::sync::Arc;
use std::time::Duration;

use headwater_edged::devices::{Devices, PluginError, PluginRegistration};
use tokio_util::sync::CancellationToken;

use crate::plugin::{Plugin, devices};

/// The shortest time from one list to the next. Until then the plugin is held back by the stream: one that floods the node
/// takes no more of it than one with ten lists a second.
const LIST_INTERVAL: Duration = Duration::from_millis(100);

/// Follows the lists of a plugin until it is gone, or another one registers its resource. It is not connected again: a
/// plugin that is back registers again.
pub(crate) async fn follow(
    resource: &str,
    plugin: Plugin,
    all: &Devices,
    cancel: &CancellationToken,
) -> Result<(), PluginError> {
    let registration = all.register(resource, Arc::new(plugin.clone()));
    let registration = registration.map_err(|error| PluginError(error.to_string()))?;
    let followed = tokio::select! {
        () = cancel.cancelled() => return Ok(()),
        () = registration.replaced() => return Ok(()),
        followed = take_lists(&plugin, &registration, all) => followed,
    };
    all.lose(&registration);
    followed
}

async fn take_lists(
    plugin: &Plugin,
    registration: &PluginRegistration,
    all: &Devices,
) -> Result<(), PluginError> {
    let mut lists = plugin.lists().await?;
    loop {
        let list = lists.message().await;
        let Some(list) = list.map_err(|status| PluginError(status.message().to_owned()))? else {
            return Ok(());
        };
        if !all.list(registration, devices(list.devices)?).await {
            return Ok(());
        }
        tokio::time::sleep(LIST_INTERVAL).await;
    }
}

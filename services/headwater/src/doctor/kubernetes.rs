//! Checks of a Kubernetes API: its version, its clock, and the rights of a controller there.

use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use headwater_cli::args::kubernetes::ApiArgs;
use headwater_kubernetes::{
    Access, AccessError, ActAs, KubernetesSettings, Right, ServerVersion, rights,
};
use headwater_telemetry::error_chain;

use super::Check;

/// The difference between the clocks from which people see it in times, in seconds.
const OFFSET_WARN_S: u64 = 5;

/// The difference from which tokens and certificates may not be valid yet, in seconds.
const OFFSET_FAIL_S: u64 = 60;

/// Checks the API that the flags name, if they name one.
pub(super) fn look(args: &ApiArgs) -> io::Result<Vec<Check>> {
    let Some(access) = access(args) else { return Ok(Vec::new()) };
    let act_as = match args.act_as.as_deref() {
        Some("self") => ActAs::Controller,
        _ => ActAs::Node,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(look_at(&access, act_as)).unwrap_or_else(|error| vec![no_access(&error)]))
}

fn access(args: &ApiArgs) -> Option<Access> {
    let kubeconfig =
        |file: &PathBuf| Access::Kubeconfig { file: file.clone(), context: args.context.clone() };
    args.kubeconfig.as_ref().map(kubeconfig).or(args.in_cluster.then_some(Access::InCluster))
}

async fn look_at(access: &Access, act_as: ActAs) -> Result<Vec<Check>, AccessError> {
    let connection = access.connect().await?;
    let version = connection.version().await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut checks = vec![judge_version(&version, act_as)];
    checks.extend(version.epoch_s.map(|server| judge_clock(server, now)));
    if !version.is_old() {
        let needed = rights(&KubernetesSettings::default(), act_as);
        let count = needed.len();
        match connection.missing(needed).await {
            Ok(missing) => checks.extend(judge_rights(count, &missing)),
            Err(error) => checks.push(no_access(&error)),
        }
    }
    Ok(checks)
}

fn no_access(error: &AccessError) -> Check {
    let advice = "give the controller access to the API, and run this again";
    Check::fail("kubernetes", error_chain(error), advice)
}

fn judge_version(version: &ServerVersion, act_as: ActAs) -> Check {
    let (name, found) = ("kubernetes", version.text.clone());
    if version.is_old() {
        return Check::fail(name, found, "upgrade the cluster: Headwater needs 1.33 or later");
    }
    if act_as == ActAs::Node && !version.has_impersonation() {
        let advice = "the controller can act as a node from 1.36 on: set act_as = \"self\" in \
                      [kubernetes], and check with --act-as self";
        return Check::fail(name, found, advice);
    }
    Check::ok(name, found)
}

/// Compares the clocks, in seconds since the Unix epoch.
fn judge_clock(server: i64, now: u64) -> Check {
    let name = "kubernetes clock";
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let offset = server.abs_diff(now);
    let side = if server > now { "behind" } else { "ahead of" };
    let found = format!("this machine is {offset} s {side} the API server");
    let advice = "synchronize both clocks";
    match offset {
        OFFSET_FAIL_S.. => {
            Check::fail(name, found, format!("{advice}: tokens and certificates depend on them"))
        }
        OFFSET_WARN_S.. => Check::warn(name, found, format!("{advice}: printed times differ")),
        _ => Check::ok(name, "agrees with that of the API server"),
    }
}

fn judge_rights(count: usize, missing: &[Right]) -> Vec<Check> {
    let name = "kubernetes rights";
    if missing.is_empty() {
        return vec![Check::ok(name, format!("all {count} that a controller uses"))];
    }
    let check = |right: &Right| {
        let advice =
            format!("to {}; grant it, as the roles of ops/deploy/kubernetes do", right.purpose);
        Check::fail(name, format!("missing: {right}"), advice)
    };
    missing.iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn clocks_are_compared_in_both_directions() {
        for (server, verdict, found) in [
            (1000, Verdict::Ok, "agrees"),
            (1004, Verdict::Ok, "agrees"),
            (1005, Verdict::Warn, "5 s behind"),
            (940, Verdict::Fail, "60 s ahead of"),
        ] {
            let check = judge_clock(server, 1000);
            assert_eq!(check.result, verdict, "{server}");
            assert!(check.found.contains(found), "{}", check.found);
        }
    }

    #[test]
    fn each_missing_right_is_a_failure_that_says_what_it_is_for() {
        let all = rights(&KubernetesSettings::default(), ActAs::Controller);
        assert_eq!(judge_rights(all.len(), &[])[0].result, Verdict::Ok);
        let checks = judge_rights(all.len(), &all[..2]);
        assert_eq!(checks.len(), 2);
        assert!(checks.iter().all(|check| check.result == Verdict::Fail));
        assert!(checks[0].found.starts_with("missing: ") && checks[0].advice.starts_with("to "));
    }
}

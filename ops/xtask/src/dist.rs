//! `cargo xtask dist`: packs what a machine needs to run a part of Headwater.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::machine::Work;
use crate::place::{Place, Profile};
use crate::step::{self, Failure};
use crate::suite;

/// The folder that is packed beside the program: settings files, units, topics and how to install
/// them.
const DEPLOY: &str = "ops/deploy";
const LICENSE: &str = "LICENSE";
const PROGRAM: &str = "headwater";

/// Builds the program for release, packs it into `DIR/headwater-VERSION-ARCH-OS.tar.gz`, or into the
/// build folder's `dist`, and prints that path.
///
/// # Errors
/// The arguments are wrong, the build fails, or the archive cannot be written.
pub(crate) fn dist(place: &Place, args: &[String]) -> Result<(), Failure> {
    let folder = match args {
        [] => place.target.join("dist"),
        [folder] if !folder.starts_with('-') => PathBuf::from(folder),
        _ => return Err(Failure::usage("cargo xtask dist [DIR]: want at most one folder")),
    };
    suite::prepare(place, Work::Build, Profile::Release)?;
    step::run(&mut suite::release(place))?;
    let binaries = place.binaries(Profile::Release);
    let version = version(&binaries.join(PROGRAM))?;
    let archive = pack(&place.root, &binaries, &folder, &version)?;
    println!("{}", archive.display());
    Ok(())
}

/// The version that the program prints.
fn version(program: &Path) -> Result<String, Failure> {
    let output = step::output(Command::new(program).arg("--version"))?;
    let version = output.split_whitespace().nth(1);
    version.map(str::to_owned).ok_or_else(|| Failure::new(format!("no version in {output:?}")))
}

/// Packs the program in `binaries` and the files of the clone at `root` into one folder of an
/// archive. The archive appears under its name only when it is complete.
fn pack(root: &Path, binaries: &Path, folder: &Path, version: &str) -> Result<PathBuf, Failure> {
    let name = format!("{PROGRAM}-{version}-{}-{}", env::consts::ARCH, env::consts::OS);
    let archive = folder.join(format!("{name}.tar.gz"));
    let partial = folder.join(format!("{name}.tar.gz.partial"));
    let failed = |error| Failure::new(format!("{} cannot be written: {error}", archive.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    let mut tar = Command::new("tar");
    // Files unpacked by root belong to root, not to the user who built them.
    tar.args(["--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg(format!("--transform=s,^[.],{name},"));
    tar.arg("-czf").arg(&partial);
    tar.arg("-C").arg(root.join(DEPLOY)).arg(".");
    for (from, what) in [(binaries, PROGRAM), (root, LICENSE)] {
        tar.arg("-C").arg(from).arg(format!("./{what}"));
    }
    step::run(&mut tar)?;
    fs::rename(&partial, &archive).map_err(failed)?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_archive_holds_the_program_and_all_that_installs_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folder = env::temp_dir().join(format!("headwater-dist-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let program = folder.join(PROGRAM);
        fs::write(&program, "#!/bin/sh\necho headwater 1.2.3\n").expect("a program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it runs");

        let version = version(&program).expect("a version");
        // Packing again replaces the first archive.
        let archive = |()| pack(&root, &folder, &folder, &version).expect("packed");
        let archive = [(), ()].map(archive)[1].clone();
        let list = Command::new("tar").arg("-tvzf").arg(&archive).output().expect("tar runs");
        let list = String::from_utf8(list.stdout).expect("text");
        let names: Vec<&str> =
            list.lines().filter_map(|line| line.split(' ').next_back()).collect();
        let top = format!("headwater-1.2.3-{}-linux", env::consts::ARCH);
        for name in ["headwater", "LICENSE", "README.md", "edge.toml", "strimzi/headwater.yaml"] {
            assert!(names.contains(&&*format!("{top}/{name}")), "no {name} in {list}");
        }
        assert!(names.iter().all(|name| name.starts_with(&*top)), "{list}");
        assert!(list.lines().all(|line| line.contains(" 0/0 ")), "{list}");
        let program = list.lines().find(|line| line.ends_with("/headwater")).expect("the program");
        assert!(program.starts_with("-rwxr-xr-x"), "{program}");
        fs::remove_dir_all(&folder).expect("removed");
    }
}

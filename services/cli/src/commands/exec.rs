//! `headwater exec` and `headwater attach`: a person's terminal and a process in a container.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::thread;

use headwater_kubelet::client::{ClientError, CommandEvent, CommandInput, CommandRequest};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::pod_target::{PodPlace, PodTarget};
use crate::args::pods::{Attach, ContainerArgs, Exec};
use crate::exit::{CommandResult, Failure, Outcome};

/// The bytes of one read of the standard input.
const READ_BYTES: usize = 32 << 10;

/// Reads that wait for a container that reads slowly.
const READS_MAX: usize = 4;

/// A terminal whose keys reach the container one by one, until this is dropped.
struct RawTerminal;

pub(super) async fn exec(args: Exec) -> CommandResult {
    run(args.container, Some(args.command)).await
}

pub(super) async fn attach(args: Attach) -> CommandResult {
    run(args.container, None).await
}

async fn run(args: ContainerArgs, command: Option<Vec<String>>) -> CommandResult {
    let place = PodPlace { namespace: &args.namespace, word: &args.pod };
    let named = args.container.as_deref();
    let target = PodTarget::find(&args.target, &args.hub, place, named.is_none()).await?;
    let has_terminal = std::io::stdin().is_terminal();
    if args.tty && !has_terminal {
        eprintln!(
            "headwater: the standard input is no terminal; the process has one without a size"
        );
    }
    let request = CommandRequest {
        namespace: args.namespace.clone(),
        container: target.container(named)?,
        pod: target.name,
        command,
        stdin: args.stdin,
        tty: args.tty,
    };
    let stream = target.node.command(&request).await?;
    if args.stdin && !args.tty && !stream.ends_stdin() {
        // Printed before the command waits for what does not come.
        note_open_input();
    }
    let (input, mut output) = stream.split();
    let raw = (args.tty && args.stdin && has_terminal).then(RawTerminal::enter).transpose()?;
    let sending = tokio::spawn(send(input, args.stdin, args.tty && has_terminal));
    let end = loop {
        match output.next().await? {
            Some(CommandEvent::Stdout(bytes)) => print(&mut std::io::stdout(), &bytes)?,
            Some(CommandEvent::Stderr(bytes)) => print(&mut std::io::stderr(), &bytes)?,
            Some(end) => break Some(end),
            None => break None,
        }
    };
    drop(raw);
    sending.abort();
    match end {
        Some(CommandEvent::Exit(code)) => Ok(exit(code)),
        Some(CommandEvent::Failed(words)) => Err(Failure::message(words)),
        // The process of a container goes on without its client.
        _ if request.command.is_none() => Ok(Outcome::Done),
        _ => Err(Failure::message("the connection ended before the command did")),
    }
}

/// The command's own exit code is that of this program.
fn exit(code: i32) -> Outcome {
    match u8::try_from(code) {
        Ok(0) => Outcome::Done,
        Ok(code) => Outcome::Exit(code),
        Err(_) => Outcome::Exit(u8::MAX),
    }
}

fn note_open_input() {
    if !std::io::stdin().is_terminal() {
        eprintln!(
            "headwater: the runtime of this node does not tell a command that its input has ended; one \
             that waits for the end waits on"
        );
    }
}

/// Sends what a person types, and the sizes of the terminal, until the connection ends.
async fn send(mut input: CommandInput, has_stdin: bool, has_size: bool) -> Result<(), ClientError> {
    let (reads, mut typed) = mpsc::channel(READS_MAX);
    if has_stdin {
        // A thread of its own, which may wait for a key when the command has ended.
        thread::spawn(move || read_stdin(&reads));
    } else {
        drop(reads);
    }
    let mut resized = signal(SignalKind::window_change()).ok().filter(|_| has_size);
    if has_size {
        state_size(&mut input).await?;
    }
    let mut is_open = true;
    loop {
        let is_resized = async {
            match &mut resized {
                Some(resized) => resized.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            bytes = typed.recv(), if is_open => match bytes {
                Some(bytes) => input.write(&bytes).await?,
                None => {
                    is_open = false;
                    if has_stdin {
                        input.end().await?;
                    }
                }
            },
            _ = is_resized => state_size(&mut input).await?,
        }
    }
}

async fn state_size(input: &mut CommandInput) -> Result<(), ClientError> {
    match crossterm::terminal::size() {
        Ok((columns, rows)) => input.resize(columns, rows).await,
        Err(_) => Ok(()),
    }
}

fn read_stdin(reads: &mpsc::Sender<Vec<u8>>) {
    let mut stdin = std::io::stdin().lock();
    let mut bytes = vec![0; READ_BYTES];
    while let Ok(read) = stdin.read(&mut bytes) {
        if read == 0 || reads.blocking_send(bytes[..read].to_vec()).is_err() {
            return;
        }
    }
}

fn print(to: &mut impl std::io::Write, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

impl RawTerminal {
    fn enter() -> std::io::Result<Self> {
        crossterm::terminal::enable_raw_mode()?;
        Ok(Self)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that is gone needs no mode.
        let _ = crossterm::terminal::disable_raw_mode();
        let _ = std::io::stdout().flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_of_the_command_is_that_of_the_program() {
        assert_eq!(exit(0), Outcome::Done);
        assert_eq!(exit(7), Outcome::Exit(7));
        assert_eq!(exit(-1), Outcome::Exit(255));
        assert_eq!(exit(300), Outcome::Exit(255));
    }
}

//! A thread that is woken at its moment, however busy the machine is with what it loads.

use std::panic::resume_unwind;
use std::thread;

use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// Runs `act` in a thread of its own and gives what it gives. Where this process may set it (root,
/// `CAP_SYS_NICE`, or an RTPRIO limit of at least 1) the thread is `SCHED_FIFO` at its lowest
/// priority, before every thread of the ordinary kind; `act` receives whether it is. So it must mostly
/// sleep, and should start no threads, which would inherit that.
///
/// # Panics
/// When `act` does, with what it says.
pub fn punctual<T: Send>(act: impl FnOnce(bool) -> T + Send) -> T {
    let thread = thread::scope(|scope| scope.spawn(|| act(to_real_time())).join());
    thread.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Makes the calling thread one of real time, and says whether that was permitted.
fn to_real_time() -> bool {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy).is_ok()
}

#[cfg(test)]
mod tests {
    use thread_priority::thread_schedule_policy;

    use super::*;

    #[test]
    fn only_the_thread_itself_is_one_of_real_time() {
        let fifo = Ok(ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo));
        let (told, is) = punctual(|told| (told, thread_schedule_policy() == fifo));
        assert_eq!(told, is);
        assert_ne!(thread_schedule_policy(), fifo);
    }
}

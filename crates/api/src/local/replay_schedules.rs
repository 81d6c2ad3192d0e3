//! Replay schedules: captured requests that the agent sends again and again by itself.

use crate::macros::{resource, wire};
use crate::{Note, Timestamp};

wire! {
    /// A captured request that is sent again and again, until that is over or somebody stops it.
    pub struct ReplaySchedule {
        /// What it is called.
        pub id: String,
        /// The path of this resource.
        pub uri: String,
        /// The captured request that is sent.
        pub captured_id: String,
        /// The tunnel to whose local service it is sent.
        pub tunnel_name: String,
        /// Where it is sent instead; absent where that is the tunnel's local service.
        pub addr: Note,
        /// Milliseconds from one time to the next.
        pub interval: i64,
        /// How many times it is sent; none without limit.
        pub times: Option<i64>,
        /// When it is sent no more; none without end.
        pub until: Option<Timestamp>,
        /// `running`; `completed` at the end of its times; `aborted` where it could not go on.
        pub state: String,
        /// Why it could not go on; absent where nothing went wrong.
        pub error: Note,
        /// When it was started.
        pub start: Timestamp,
        /// When it is sent next; none once that is over.
        pub next: Option<Timestamp>,
        /// How many times it has been sent.
        pub sent: i64,
        /// How many times it will still be sent; none without limit.
        pub remaining: Option<i64>,
        /// How many times there was no response, or one with a status from 500 on.
        pub failed: i64,
        /// The status of the last response; none where there was none.
        pub last_status: Option<i64>,
        /// The captured request of the last time; absent where it was not captured.
        pub last_captured_id: Note,
    }
}

resource! {
    /// Replay schedules: captured requests that the agent sends again and again by itself.
    "replay_schedules" {
        /// List the replay schedules, oldest first: those that run, and the last that are over.
        GET "/replay_schedules" List() -> [replay_schedules: ReplaySchedule];
        /// Send a captured request at once, and again after each interval until somebody stops it.
        ///
        /// At most 20 run at a time. Each time waits for the response to the one before, but at most
        /// ten seconds for the end of one that has begun. A schedule ends with the agent, with its
        /// tunnel, and when its request or all requests are deleted; where newer requests displace
        /// that, it goes on.
        POST "/replay_schedules" Add(
            /// The captured request to send.
            captured_id: String,
            /// Milliseconds from one time to the next, 100 to 86,400,000.
            interval: i64,
            [
            /// How many times to send it, 1 to 1,000,000; without limit by default.
            times: i64,
            /// When to send it no more; never by default.
            until: Timestamp,
            /// The tunnel to use instead of the one that received the request.
            tunnel_name: String,
            /// Where to send it instead of the tunnel's local service: `host:port` or a URL. Hosts other
            /// than this machine's own and those of its tunnels must stand in `replay_allow_hosts`.
            addr: String,
        ]) -> ReplaySchedule;
        /// Fetch one replay schedule.
        GET "/replay_schedules/{id}" Get(
            /// What the schedule is called.
            id: String
        ) -> ReplaySchedule;
        /// Stop a replay schedule, and remove it; a request that is under way is not interrupted.
        DELETE "/replay_schedules/{id}" Delete(
            /// What the schedule is called.
            id: String
        );
        /// Stop and remove all replay schedules.
        DELETE "/replay_schedules" Clear();
    }
}

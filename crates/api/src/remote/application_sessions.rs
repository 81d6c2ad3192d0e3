//! Application sessions: the sessions of visitors after their login.

use crate::macros::{resource, wire};
use crate::remote::Ref;
use crate::{Number, Timestamp};

wire! {
    /// A browser, as it calls itself.
    pub struct UserAgent {
        /// The header `User-Agent`; at most 512 bytes of it.
        pub raw: Option<String>,
        /// The name of the browser.
        pub browser_name: Option<String>,
        /// The version of the browser.
        pub browser_version: Option<String>,
        /// `Desktop`, `Mobile`, `Tablet` or `Bot`; empty when it is not known.
        pub device_type: Option<String>,
        /// The name of the operating system.
        pub os_name: Option<String>,
        /// The version of the operating system.
        pub os_version: Option<String>,
    }

    /// Where an address is, as the address database of the service says.
    pub struct Location {
        /// ISO code of the country.
        pub country_code: Option<String>,
        /// The latitude.
        pub latitude: Option<Number>,
        /// The longitude.
        pub longitude: Option<Number>,
        /// How exact that is, in kilometres.
        pub lat_long_radius_km: Option<i64>,
    }

    /// The browser that has logged in.
    pub struct BrowserSession {
        /// The browser, as it calls itself.
        pub user_agent: Option<UserAgent>,
        /// The address that the visitor has logged in from.
        pub ip_address: Option<String>,
        /// Where that is; none unless the service has an address database that knows it.
        pub location: Option<Location>,
    }

    /// What a visitor has who is logged in.
    pub struct ApplicationSession {
        /// Unique identifier, `as_` and 27 characters.
        pub id: String,
        /// The address of this session.
        pub uri: String,
        /// What the visitor has logged in to: the scheme, the host and the port.
        pub public_url: Option<String>,
        /// The browser that has logged in.
        pub browser_session: Option<BrowserSession>,
        /// Who has logged in.
        pub application_user: Option<Ref>,
        /// When the visitor logged in.
        pub created_at: Option<Timestamp>,
        /// When the visitor last sent a request; a few minutes old.
        pub last_active: Option<Timestamp>,
        /// When the session ends if the visitor sends no other request.
        pub expires_at: Option<Timestamp>,
        /// The endpoint that the visitor has logged in to; none where that is an edge.
        pub endpoint: Option<Ref>,
        /// The edge that the visitor has logged in to.
        pub edge: Option<Ref>,
        /// The route of the edge.
        pub route: Option<Ref>,
    }
}

resource! {
    /// Application sessions: the sessions of visitors after their login.
    "application_sessions" {
        /// List the sessions, newest first.
        GET "/app/sessions" List([before_id: String, limit: i64]) -> [application_sessions: ApplicationSession];
        /// Fetch one session.
        GET "/app/sessions/{id}" Get(id: String) -> ApplicationSession;
        /// End a session, on all nodes; the visitor may log in again.
        DELETE "/app/sessions/{id}" Delete(id: String);
    }
}

//! Application sessions: made by logins; nodes ask for them, so that deleting one ends it.

use ginnel_api::remote::Ref;
use ginnel_api::remote::application_sessions::{ApplicationSession, Delete, Get, List};

use crate::handlers::prelude::*;

impl StoredResource for ApplicationSession {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        if let (Some(edge), Some(route)) = (&self.edge, &mut self.route) {
            route.uri = base.of_route(&edge.id, &route.id);
        }
        let others = [&mut self.application_user, &mut self.edge, &mut self.endpoint];
        for other in others.into_iter().flatten() {
            let Ref { id, uri } = other;
            *uri = base.of(id);
        }
    }
}

pub(super) fn handlers() -> Vec<Handler> {
    vec![list::<List>(), get::<Get>(), delete::<Delete>()]
}

//! Agents at the service: who may log in.

mod login;

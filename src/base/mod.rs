//! Border types: text from outside is parsed once, at the border, into one of these.
//!
//! This module knows no protocol and does no I/O. Code behind the border receives the types and never parses
//! their text again.

pub mod address;
pub mod letters;

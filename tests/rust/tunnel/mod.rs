//! How bytes travel between agent and service.

mod calls;
mod floods;
mod frames;
mod groups;
mod login;
mod messages;
mod odd_frames;
mod sessions;
mod states;
mod support;

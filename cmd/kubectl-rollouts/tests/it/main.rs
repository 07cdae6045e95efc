//! The plugin as a program.

mod command_line;
mod plugin;
mod preview;

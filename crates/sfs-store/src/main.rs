//! `sfs-store URL`: reaches an object store for a program of SFS, which has the other end of the socket at standard input.
//!
//! The programs of SFS start it; it is of no use at a terminal. It has what they do not want in their processes: a runtime, TLS, credentials, and the
//! libraries of cloud providers. `sfs_object::store_protocol` has the protocol.
//!
//! * `url` finds the store of a URL, with credentials from the usual environment and files; `directory` sees when that of a `file:` URL is
//!   replaced;
//! * `operations` does the work of requests, and `outcome` says what is known after a failure;
//! * `confinement` gives up what no store needs, and `files` the files;
//! * `probe` tries whether the store honours the condition that the protocol needs;
//! * `server` serves the socket.
#![forbid(unsafe_code)]

mod aws_files;
mod confinement;
mod directory;
mod files;
mod http_reply;
mod operations;
mod outcome;
mod probe;
mod server;
mod url;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(argument), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: sfs-store URL, started by a program of SFS");
        return ExitCode::from(2);
    };
    if argument == "--version" {
        println!("sfs-store {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let url = argument.to_string_lossy();
    server::widen(std::io::stdin());
    // Before there are threads.
    confinement::enter(&url);
    files::limit(&url);
    let socket = std::io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    let socket = socket.and_then(|socket| socket.peer_addr().map(|_| socket));
    let result = socket
        .map_err(|_| std::io::Error::other("standard input is not the socket of a program of SFS"))
        .and_then(|socket| server::run(socket, &url));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sfs-store: {error}");
            ExitCode::FAILURE
        }
    }
}

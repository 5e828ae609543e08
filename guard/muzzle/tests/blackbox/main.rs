//! Muzzle from outside: real sockets on both sides, every byte of the client and of the model server written by a test.

#[cfg(test)]
mod administers;
#[cfg(test)]
mod command;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod passes;
#[cfg(test)]
mod refuses;
#[cfg(test)]
mod support;

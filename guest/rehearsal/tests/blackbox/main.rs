//! The provider from outside: a raw client over real sockets, so that each fault is seen as it is on the wire.

#[cfg(test)]
mod faults;
#[cfg(test)]
mod plays;
#[cfg(test)]
mod role;
#[cfg(test)]
mod support;

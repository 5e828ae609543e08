//! The least a program can do at its start: the peer of `sentinel --version`.
//! `bench/run` compiles it statically.

fn main() {
    println!("hello");
}

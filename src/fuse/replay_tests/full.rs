//! Replays on a volume that has no room for another name.

use super::*;

/// Length of the values of attributes, in bytes: they take the room quickly.
const VALUE_LEN: usize = 1500;

/// Makes and removes names, attributes and small files until many were refused.
fn use_all_room(scene: &mut Scene, random: &mut SeededRng) {
    let mut refused = 0;
    let mut nodes = Vec::new();
    for number in 0..4000 {
        let name = format!("{number:0200}\0");
        match random.below(8) {
            0..=2 => {
                let made =
                    scene.ask((CREATE, ROOT_INO), &[&words([2, 0o100_644, 0, 0]), name.as_bytes()]);
                match made {
                    Ok(Reply::Created(entry, _)) => nodes.push((name, entry.node)),
                    _ => refused += 1,
                }
            }
            3 | 4 if !nodes.is_empty() => {
                let node = nodes[random.below(nodes.len() as u64) as usize].1;
                let value = random.bytes(VALUE_LEN);
                let attribute = format!("user.{}\0", random.below(4));
                let head = words([VALUE_LEN as u32, 0]);
                let set = scene.ask((SETXATTR, node), &[&head, attribute.as_bytes(), &value]);
                refused += usize::from(set.is_err());
            }
            5 | 6 if !nodes.is_empty() => {
                let node = nodes[random.below(nodes.len() as u64) as usize].1;
                let len = 1 + random.below(9000) as usize;
                let data = random.bytes(len);
                let head = write_head(
                    random.below(3) as usize * 5000,
                    &data,
                    libc::O_DIRECT.cast_unsigned(),
                );
                let written = scene.ask((WRITE, node), &[&head, &data]);
                refused += usize::from(written.is_err());
            }
            7 if random.one_in(3) && !nodes.is_empty() => {
                let at = random.below(nodes.len() as u64) as usize;
                let (name, node) = nodes.swap_remove(at);
                scene.ask((UNLINK, ROOT_INO), &[name.as_bytes()]).expect("the file is there");
                scene.forget(node, 1);
            }
            _ => {}
        }
        if random.one_in(100) {
            scene.sync();
        }
        if refused > 60 {
            return;
        }
    }
    panic!("there is too much room");
}

/// Regression: the tree took some blocks more than before, as its nodes were split at other places, and the mount was given up for
/// want of space. `SFS_SEED` is the first of `SFS_SEEDS` seeds; the space was missing with seed 16.
#[test]
fn names_that_had_room_have_it_again() {
    let first = number_from_env("SFS_SEED", 16);
    for seed in first..first + number_from_env("SFS_SEEDS", 3) {
        let mut random = SeededRng::new(seed);
        let mut scene = Scene::new();
        scene.fill((1 << 18) + random.below(1 << 20));
        use_all_room(&mut scene, &mut random);
        let names = scene.shell.volume.attributes(ROOT_INO).expect("a directory").size;
        let revived = scene.die();
        let revived = revived.volume.attributes(ROOT_INO).expect("a directory").size;
        assert_eq!(revived, names, "seed {seed}");
    }
}

// Package letter seals what the controller and the nodes say to each other of a job's tags.
//
// Slurm carries the letters. A job's [github.com/slurm-v/slurm-v/fabric.Reservation] stands
// in the job's AdminComment, which only administrators of Slurm can write. A node's
// [Statement] stands in the node's Comment. Everybody can read both, so a letter is
// encrypted. It also names its subject, so that nobody can copy it to another job or node.
// Both ends have the same key file ([Load]).
//
// A word of the controller's in a node's Comment asks for the confirmation of a run ([PutAsks]).
//
// The letter is one word among the site's own words in the comment, which stay
// ([PutBlock], [DropBlock]). [Find] reads it. A text that only looks like a letter counts as
// none.
package letter

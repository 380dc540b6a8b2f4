//go:build ignore

/* The PMIx server of one rank. */
#ifndef SERVER_H
#define SERVER_H

/* Begins to serve, and returns the environment that the program needs for it, after that of this
 * process. Returns NULL, and a sentence in *why, if it cannot. */
char **server_begin(char **why);

/* Does what the program asks for, until the connection to PMI's server ends. */
void server_run(void);

#endif

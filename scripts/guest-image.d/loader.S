/*
 * Starts an unpacked 64-bit Linux from the place where the setup code of a bzImage
 * expects its decompressor, which is slow under emulation. The setup code enters
 * in 32-bit mode with flat segments, paging off and the boot parameters in %esi.
 * The kernel wants to be at its physical address and in 64-bit mode, with memory
 * mapped one to one (Linux, Documentation/x86/boot.rst).
 *
 * To be linked at 1 MiB, before tsc.c. KERNEL is where the kernel runs, ENTRY its first instruction, END where
 * its memory ends.
 */
	.code32
	.globl	_start
_start:
	cli
	movl	%esi, %ebp

	/* The end of the kernel's memory, which is free, has room for a stack. */
	cld
	movl	$END, %esp
	andl	$-16, %esp
	pushl	%esi
	call	measure_tsc

	/* Upwards into place, from the end because the two may overlap. */
	std
	movl	$image_end - 4, %esi
	movl	$KERNEL + (image_end - image) - 4, %edi
	movl	$(image_end - image) / 4, %ecx
	rep movsl
	cld
	movl	$KERNEL + (image_end - image), %edi
	movl	$(END - KERNEL - (image_end - image)) / 4, %ecx
	xorl	%eax, %eax
	rep stosl

	movl	%cr4, %eax
	orl	$0x20, %eax			/* physical address extension */
	movl	%eax, %cr4
	movl	$level4, %eax
	movl	%eax, %cr3
	movl	$0xc0000080, %ecx		/* the extended feature register: */
	rdmsr
	btsl	$8, %eax			/* long mode, from when paging is on */
	wrmsr
	lgdt	descriptors_at
	movl	$0x80000001, %eax		/* paging and protection */
	movl	%eax, %cr0
	ljmp	$0x10, $enter

	.code64
enter:
	movl	%ebp, %esi
	movl	$ENTRY, %eax
	jmp	*%rax

	.balign	8
descriptors:					/* as the boot protocol numbers them */
	.quad	0, 0
	.quad	0x00af9a000000ffff		/* 0x10: 64-bit code */
	.quad	0x00cf92000000ffff		/* 0x18: data */
descriptors_end:
descriptors_at:
	.word	descriptors_end - descriptors - 1
	.long	descriptors

	/* The first 4 GiB in pages of 2 MiB. */
	.balign	4096
level4:	.long	level3 + 3, 0
	.fill	511, 8, 0
level3:	.long	level2 + 3, 0, level2 + 0x1003, 0, level2 + 0x2003, 0, level2 + 0x3003, 0
	.fill	508, 8, 0
level2:
	.set	page, 0
	.rept	2048
	.quad	page + 0x83
	.set	page, page + 0x200000
	.endr

image:	.incbin	"kernel.bin"
	.balign	4
image_end:

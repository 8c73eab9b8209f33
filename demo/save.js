// Hands a file that the server made (views.Download) to the person as a download; nothing stays on the server's disk.
(file) => {
  const bytes = Uint8Array.from(atob(file.data), (c) => c.charCodeAt(0));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes], { type: file.type }));
  link.download = file.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

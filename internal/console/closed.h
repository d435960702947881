extern int gs_output_closed; // standard output was closed when the process began
